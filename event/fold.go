package event

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// FoldOptions bound a Folder. Zero values mean the defaults.
type FoldOptions struct {
	Interval    time.Duration // a repeated key gets one summary in this time at first; default 10 s
	MaxInterval time.Duration // the interval doubles up to this while a key goes on; default 10 min
	MaxKeys     int           // keys of one class remembered at once; default 1024
	Burst       int           // lines of one class before its budget counts; default 500. One with long texts counts as several
	PerSecond   float64       // what a class's budget gets back; default 5
	MaxFirsts   int           // denials that are let through over the budget, each the first of its type, door, call and errno; default 512
	All         bool          // repetitions are written too, as far as the budget goes: for a log that is compared with what was done
}

// Folder turns a stream of events into one that a person can read and a disk can hold: the first of a key is let
// through at once, its repetitions come as one summary with a count, and each class has a budget of its own. It is pure:
// time is what it is told. Nothing is lost silently: Counts adds up, and what a budget cut comes as events.lost.
type Folder struct {
	o       FoldOptions
	keys    map[[32]byte]*entry
	held    map[Class]int // how many of keys are of a class
	budgets map[Class]*budget
	firsts  map[[32]byte]bool // kinds of denials that were let through once
	counts  Counts
	unsaid  uint64 // that events.lost over the budget would have told of, since the last events.lost of ours
}

// Counts says what became of the events that came in: Produced = Emitted + Folded + Dropped.
type Counts struct {
	Produced uint64 `json:"produced"`
	Emitted  uint64 `json:"emitted"`  // let through as they were
	Folded   uint64 `json:"folded"`   // counted in a summary, written or still to be written
	Dropped  uint64 `json:"dropped"`  // over the budget of their class
	Overflow uint64 `json:"overflow"` // emitted without being remembered, because the key table of its class was full
}

type entry struct {
	class    Class
	last     *Event
	since    time.Time // of the first occurrence that the next summary counts
	due      time.Time
	interval time.Duration
	pending  uint64 // occurrences since the last line
}

type budget struct {
	tokens  float64
	at      time.Time
	dropped uint64 // since the last events.lost
}

// NewFolder returns an empty Folder.
func NewFolder(o FoldOptions) *Folder {
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	if o.MaxInterval < o.Interval {
		o.MaxInterval = max(o.Interval, 10*time.Minute)
	}
	if o.MaxKeys <= 0 {
		o.MaxKeys = 1024
	}
	if o.Burst <= 0 {
		o.Burst = 500
	}
	if o.PerSecond <= 0 {
		o.PerSecond = 5
	}
	if o.MaxFirsts <= 0 {
		o.MaxFirsts = 512
	}
	return &Folder{o: o, keys: map[[32]byte]*entry{}, firsts: map[[32]byte]bool{}, held: map[Class]int{}, budgets: map[Class]*budget{}}
}

// Add takes one event and returns it when it is to be written now, nil when it is counted.
func (f *Folder) Add(e *Event, now time.Time) *Event {
	f.counts.Produced++
	class := e.class()
	if class == ClassControl {
		f.counts.Emitted++
		return e
	}
	if f.o.All || !e.folds() {
		return f.spend(class, e, now)
	}
	key := foldKey(e)
	if known := f.keys[key]; known != nil {
		if known.pending == 0 {
			known.since = e.Time
		}
		known.pending += max(e.Count, 1)
		known.last = e
		f.counts.Folded++
		return nil
	}
	out := f.spend(class, e, now)
	if out == nil {
		return nil // not remembered: its next occurrence is a first one again, and may find budget
	}
	if f.held[class] >= f.o.MaxKeys {
		f.counts.Overflow++
		return out
	}
	f.held[class]++
	f.keys[key] = &entry{class: class, due: now.Add(f.o.Interval), interval: f.o.Interval}
	return out
}

// lineBytes is about what a line takes in a log. What a program passes can make one fifty times as long.
const lineBytes = 1 << 10

// weight is how many lines an event's texts are worth, as they are written: a byte that a terminal would obey takes six.
func weight(e *Event) float64 {
	n := written(e.Detail) + written(e.Blocker)
	if e.Target != nil {
		n += written(e.Target.Asked) + written(e.Target.Resolved) + written(e.Target.Old)
	}
	if e.Process != nil {
		n += written(e.Process.Exe) + written(e.Process.Comm)
	}
	for _, s := range e.Ancestors {
		n += written(s)
	}
	for _, v := range e.Data {
		switch v := v.(type) {
		case string:
			n += written(v)
		case []string:
			for _, s := range v {
				n += written(s)
			}
		case []any: // what was []string before it came over a socket
			for _, s := range v {
				if s, ok := s.(string); ok {
					n += written(s)
				}
			}
		}
	}
	return max(1, float64(n)/lineBytes)
}

func written(s string) int {
	n := len(s)
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' || s[i] >= 0x7f {
			n += 5
		}
	}
	return n
}

// spend takes an event's lines from the class's budget. While there is one left, the next event may take more: it is paid
// for afterwards. What is the first of its kind takes none where there is none.
func (f *Folder) spend(class Class, e *Event, now time.Time) *Event {
	first := f.first(e)
	b := f.budgets[class]
	if b == nil {
		b = &budget{tokens: float64(f.o.Burst), at: now}
		f.budgets[class] = b
	}
	if gone := now.Sub(b.at); gone > 0 {
		b.tokens = min(float64(f.o.Burst), b.tokens+gone.Seconds()*f.o.PerSecond)
		b.at = now
	}
	if b.tokens < 1 && first {
		f.counts.Emitted++
		return e
	}
	if b.tokens < 1 {
		if e.Type == EventsLost {
			f.unsaid += e.Count
		}
		b.dropped++
		f.counts.Dropped++
		return nil
	}
	b.tokens -= weight(e)
	f.counts.Emitted++
	return e
}

// first says that no denial of the same kind was let through before: whoever can fill a budget with denials that cost him nothing
// must not choose by that which others are told. What a program can name at will, as a target, makes no kind.
func (f *Folder) first(e *Event) bool {
	if !e.Type.Denial() || e.refusal() {
		return false
	}
	call, _, _ := strings.Cut(e.Syscall, " ") // "call 1234", of any number, has no name
	kind := hash([]string{string(e.Type), e.Door, call, e.Errno, e.Phase})
	if f.firsts[kind] || len(f.firsts) >= f.o.MaxFirsts {
		return false
	}
	f.firsts[kind] = true
	return true
}

// Tick returns the summaries that are due, forgets keys that have been quiet for their interval, and reports what the
// budgets cut since the last call. Call it about once a second.
func (f *Folder) Tick(now time.Time) []*Event { return f.collect(now, false) }

// Flush returns everything that is still held back. The Folder can be used on.
func (f *Folder) Flush(now time.Time) []*Event { return f.collect(now, true) }

func (f *Folder) collect(now time.Time, all bool) []*Event {
	var out []*Event
	for key, en := range f.keys {
		if !all && now.Before(en.due) {
			continue
		}
		if en.pending == 0 {
			delete(f.keys, key)
			f.held[en.class]--
			continue
		}
		out = append(out, en.summary())
		en.pending, en.last = 0, nil
		en.interval = min(2*en.interval, f.o.MaxInterval)
		en.due = now.Add(en.interval)
	}
	slices.SortFunc(out, func(a, b *Event) int { return a.Time.Compare(b.Time) })
	if lost := f.lost(now); lost != nil {
		out = append(out, lost)
	}
	return out
}

// summary is the last occurrence with the number of them, and since when they are counted.
func (en *entry) summary() *Event {
	e := *en.last
	e.Count = en.pending
	e.Data = make(map[string]any, len(en.last.Data)+1)
	for k, v := range en.last.Data {
		e.Data[k] = v
	}
	e.Data["folded_since"] = en.since.UTC().Format(time.RFC3339Nano)
	return &e
}

func (f *Folder) lost(now time.Time) *Event {
	var sum uint64
	data := map[string]any{}
	for class, b := range f.budgets {
		if b.dropped > 0 {
			sum += b.dropped
			data[string(class)] = b.dropped
			b.dropped = 0
		}
	}
	if sum == 0 {
		return nil
	}
	if f.unsaid > 0 { // then it was dropped itself, and sum is above 0
		data["unsaid"] = f.unsaid
		sum += f.unsaid
		f.unsaid = 0
	}
	return &Event{Schema: Schema, Time: now, Type: EventsLost, Count: sum, Cause: "budget", Data: data,
		Detail: "more different events than their budget allows; they were counted, not written"}
}

// Counts is what became of the events so far.
func (f *Folder) Counts() Counts { return f.counts }

// foldKey hashes what makes two events the same to a reader. A cryptographic hash, because whoever could make two keys
// collide could hide the first denial of one of them.
func foldKey(e *Event) [32]byte {
	parts := []string{string(e.Type), e.Door, e.Errno, e.Syscall, e.Cause, e.Blocker, e.Layer, e.Phase}
	if e.Process != nil {
		parts = append(parts, e.Process.Exe, e.Process.Comm)
	}
	parts = append(parts, "")
	if e.Target != nil {
		parts = append(parts, e.Target.Asked, e.Target.Resolved, e.Target.Old)
	}
	if !e.Type.Denial() || e.refusal() {
		// Of a denial by the kernel the fields say everything; elsewhere the sentence is what there is.
		parts = append(parts, e.Detail)
	}
	return hash(parts)
}

func hash(parts []string) [32]byte {
	h := sha256.New()
	var size [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return [32]byte(h.Sum(nil))
}
