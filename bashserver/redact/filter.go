package redact

import (
	"io"
	"math/bits"
	"time"
)

// Patience is how long a byte is held back that may belong to a token. What may be the beginning of a value, four bytes
// of it at least, is held until it is clear.
const Patience = 100 * time.Millisecond

const (
	// held is how many bytes of a value have to be there before they wait without end. Fewer would make a prompt wait.
	held = 4
	// window is how long a match of a rule can be: the largest private keys are a little shorter.
	window = 16 << 10
	// behind is what is kept of the text that has been passed on: a rule may want to see what stands in front.
	behind = 128
	// nearby is how far behind its keyword a token may stand that has no text of its own.
	nearby = 100
	// stride is how often it is noted which state a long match is in.
	stride = 64
)

// Filter is a writer that puts [redacted:NAME] in the place of every secret, and passes everything else on, in order. It
// serves one stream. It does not matter where the stream is cut into writes, except that nothing is held for longer than
// Patience but values: its owner calls Idle when Wait says so.
type Filter struct {
	dst io.Writer
	set *Set

	buf  []byte
	base int64 // offset in the stream of buf[0]
	sent int64 // all before is done with
	seen int64 // all that begins before is known

	parts []part
	runs  []run
	zones []zone
	spans []span

	done   []int64 // by name: the end of the last match of a rule that was covered
	tried  []int64 // all before has been searched for a rule of a zone
	trails map[int]*trail

	marks  []mark
	timed  int64 // all before has had its mark
	last   int64 // the end of what was last taken out
	now    func() time.Time
	counts []uint64
}

// part is a value that has begun and may go on.
type part struct {
	form *form
	from int64
	full bool // it is there; only its end is not clear
}

// run is a match of a rule that may come about.
type run struct {
	rule *rule
	name int
	from int64
	at   int64 // all before has been read
	hold int64 // where the secret may begin; -1: it has not
	end  int64 // of the match that is preferred so far; -1: none
	next int64 // where another began that has come to the same state, the last of them
	s    *state
}

// trail is the states of a rule's last long match, one every stride bytes, and where a match ended before.
type trail struct {
	from   int64
	states []*state
	end    int64
}

// zone is where a rule applies because of a keyword in front.
type zone struct {
	rule     *rule
	name     int
	at, upto int64
}

// mark says when bytes came.
type mark struct {
	upto int64
	when time.Time
}

// Filter returns a new filter in front of dst.
func (s *Set) Filter(dst io.Writer) *Filter {
	return &Filter{dst: dst, set: s, now: time.Now, counts: make([]uint64, len(s.names)),
		done: make([]int64, len(s.names)), tried: make([]int64, len(s.names)), trails: map[int]*trail{}}
}

// Write passes on what is certain. Its error is that of the writer behind it.
func (f *Filter) Write(p []byte) (int, error) {
	if len(f.set.names) == 0 {
		return f.dst.Write(p)
	}
	if len(p) == 0 {
		return 0, nil
	}
	f.buf = append(f.buf, p...)
	f.resume()
	f.scan()
	return len(p), f.settle(false)
}

// Wait is how long the stream may be silent before Idle has to be called; 0: for ever.
func (f *Filter) Wait() time.Duration {
	if len(f.marks) == 0 {
		return 0
	}
	return max(f.marks[0].when.Add(Patience).Sub(f.now()), 1)
}

// Idle passes on what has waited for long enough.
func (f *Filter) Idle() error { return f.settle(false) }

// Close passes on what is held: the stream has ended. It does not close the writer behind.
func (f *Filter) Close() error { return f.settle(true) }

// Count is how often something was taken out.
type Count struct {
	Name string // of a value or a rule
	Rule bool
	N    uint64
}

// Counts are the marks that have been written, by name, values first.
func (f *Filter) Counts() []Count {
	var out []Count
	for i, n := range f.counts {
		if n > 0 {
			out = append(out, Count{f.set.names[i], i >= f.set.values, n})
		}
	}
	return out
}

// Add adds a count to those of other streams.
func Add(to []Count, c Count) []Count {
	for i := range to {
		if to[i].Name == c.Name && to[i].Rule == c.Rule {
			to[i].N += c.N
			return to
		}
	}
	return append(to, c)
}

func (f *Filter) end() int64 { return f.base + int64(len(f.buf)) }

func (f *Filter) from(pos int64) []byte { return f.buf[pos-f.base:] }

// resume goes on with what had begun.
func (f *Filter) resume() {
	parts := f.parts
	f.parts = f.parts[:0]
	for _, p := range parts {
		f.value(p.form, p.from)
	}
	runs := f.runs
	f.runs = f.runs[:0]
	for _, r := range runs {
		f.follow(r)
	}
	zones := f.zones
	f.zones = f.zones[:0]
	for _, z := range zones {
		f.search(z)
	}
}

// scan finds what begins in the text that is new.
func (f *Filter) scan() {
	t, text, i := &f.set.table, f.buf, int(f.seen-f.base)
	for ; i+block+2 <= len(text); i += block {
		p := (*[block + 2]byte)(text[i:])
		var places uint32
		if t.pairs {
			places = t.even(p)
		} else {
			places = t.every(p)
		}
		for ; places != 0; places &= places - 1 {
			f.look(i + bits.TrailingZeros32(places))
		}
	}
	step := 1
	if t.pairs {
		step = 2
	}
	for ; i+3 <= len(text); i += step {
		if x, _ := word(text[i : i+3]); t.at(x) != 0 {
			f.look(i)
		}
	}
	f.seen = f.base + int64(i)
}

// look follows what may begin at a place of buf.
func (f *Filter) look(i int) {
	var x, mask uint64
	if i+8 <= len(f.buf) {
		x, mask = load(f.buf[i:i+8]), ^uint64(0)
	} else {
		x, mask = word(f.buf[i:])
	}
	at := f.base + int64(i)
	for _, t := range f.set.lookup(x) {
		switch {
		case (x^t.want)&t.mask&mask != 0:
		case t.form != nil:
			if from := at - int64(t.back); from >= f.base {
				f.value(t.form, from)
			}
		case t.rule.near:
			f.search(zone{t.rule, t.name, at, at + nearby})
		default:
			for back := t.rule.backMin; back <= t.rule.backMax; back++ {
				f.start(t.rule, t.name, at-int64(back))
			}
		}
	}
}

func (f *Filter) value(form *form, from int64) {
	n, full, more := form.match(f.from(from))
	if full {
		f.cover(span{from: from, to: from + int64(n), name: form.name})
	}
	if more {
		f.parts = append(f.parts, part{form, from, full})
	}
}

// search tries every place of a zone that no zone of the rule has reached before.
func (f *Filter) search(z zone) {
	tried := &f.tried[z.name]
	for z.at = max(z.at, *tried); z.at < z.upto && z.at < f.end(); z.at++ {
		if f.from(z.at)[0] == '\n' {
			return
		}
		f.start(z.rule, z.name, z.at)
		*tried = z.at + 1
	}
	if z.at < z.upto {
		f.zones = append(f.zones, z)
	}
}

// start begins a match of a rule at a place, if it can.
func (f *Filter) start(r *rule, name int, at int64) {
	if at < f.base {
		return
	}
	m := r.ready()
	f.follow(run{rule: r, name: name, from: at, at: at, hold: -1, end: -1, s: m.begin[f.before(at)].Load()})
}

// before says what stands in front of a place. The end of a colour is no letter.
func (f *Filter) before(at int64) uint8 {
	i := int(at - f.base)
	if i == 0 {
		if f.base > 0 {
			return afterOther
		}
		return atBegin
	}
	if f.buf[i-1] == 'm' {
		j := i - 2
		for j >= 0 && i-j < 16 && (f.buf[j] >= '0' && f.buf[j] <= '9' || f.buf[j] == ';') {
			j--
		}
		if j > 0 && f.buf[j] == '[' && f.buf[j-1] == 0x1b {
			return afterOther
		}
	}
	return prevOf(f.buf[i-1])
}

// follow reads on until the match is decided or the text ends.
func (f *Filter) follow(r run) {
	m, end := r.rule.machine, f.end()
	for {
		upto := min(end, r.from+window)
		for r.at < upto {
			if r.at%stride == 0 && f.joins(&r) {
				continue
			}
			r.s = m.step(r.s, f.buf[r.at-f.base])
			if r.s.matched {
				r.end = r.at
			}
			switch {
			case r.s.dead():
				f.decide(r, r.at+1)
				return
			case !r.s.inside && r.end < 0:
				r.hold = -1
			case r.s.inside && r.hold < 0:
				r.hold = r.at
			}
			r.at++
		}
		if r.at < r.from+window {
			f.wait(r)
			return
		}
		f.decide(r, r.at)
		if r.end >= 0 || r.next <= r.from {
			return
		}
		r.from, r.hold = r.next, r.next // that had come to the same state
	}
}

// joins notes on the trail of a rule where its longer matches have come to, and lets a later one that has come to the
// same state at the same place take the rest in one step: what makes beginnings without an end cost no more than once.
func (f *Filter) joins(r *run) bool {
	if r.at-r.from < stride {
		return false
	}
	t := f.trails[r.name]
	if t == nil {
		t = &trail{}
		f.trails[r.name] = t
	}
	if i := (r.at - t.from) / stride; len(t.states) > 0 && i >= 0 && i < int64(len(t.states)) {
		last := int64(len(t.states) - 1)
		if t.states[i] == r.s && i < last && t.end < r.at {
			r.at, r.s = t.from+last*stride, t.states[last]
			if r.s.inside {
				r.hold = r.from
			}
			return true
		}
		t.states = t.states[:i]
	} else if i != int64(len(t.states)) || len(t.states) == 0 {
		t.from, t.states = r.at, t.states[:0]
	}
	t.states = append(t.states, r.s)
	t.end = r.end
	return false
}

// wait keeps a match that the text has not decided. Of two that have come to the same state, the earlier stands for both.
func (f *Filter) wait(r run) {
	for i := range f.runs {
		if o := &f.runs[i]; o.name == r.name && o.s == r.s && o.end < 0 && r.end < 0 {
			o.next = max(o.next, r.from, r.next)
			return
		}
	}
	f.runs = append(f.runs, r)
}

// decide covers the secret of a match, of which all before upto has been read.
func (f *Filter) decide(r run, upto int64) {
	if r.end < 0 || r.end <= f.done[r.name] {
		return
	}
	from := max(f.base, r.from-behind)
	text := f.buf[from-f.base : upto-f.base]
	if a, b, ok := r.rule.secret(text, int(r.from-from), int(r.end-from)); ok {
		f.done[r.name] = from + int64(b)
		f.cover(span{from: from + int64(a), to: from + int64(b), name: r.name, rule: true})
	}
}

// settle passes on what need not be held.
func (f *Filter) settle(closing bool) error {
	end := f.end()
	upto := end
	if closing {
		f.expire(end)
	} else if upto = f.certain(); upto < end {
		upto = f.patience(upto)
	}
	err := f.emit(upto)
	f.trim()
	return err
}

// certain is the place up to which nothing has to be held for the time being.
func (f *Filter) certain() int64 {
	upto := f.end() - int64(f.set.begins(f.buf))
	for _, p := range f.parts {
		upto = min(upto, p.from)
	}
	for _, r := range f.runs {
		if r.hold >= 0 {
			upto = min(upto, r.hold)
		}
	}
	return max(min(upto, f.middles()), f.sent)
}

// middles is where a token may have begun that is known only by what comes later in it.
func (f *Filter) middles() int64 {
	end := f.end()
	if len(f.buf) < held || !wordy(f.buf[len(f.buf)-held:]) {
		return end
	}
	upto := end
	runs := f.runs
	for _, t := range f.set.middle {
		for at := max(f.base, end-int64(t.rule.backMax)-2); at <= end-held; at++ {
			f.runs = runs[len(runs):]
			f.start(t.rule, t.name, at)
			if len(f.runs) > 0 && f.runs[0].hold >= 0 {
				upto = min(upto, f.runs[0].hold)
				break
			}
		}
	}
	f.runs = runs
	return upto
}

func wordy(b []byte) bool {
	for _, c := range b {
		if !alphanumeric(rune(c)) && c != '_' && c != '.' && c != '~' && c != '-' && c != '=' {
			return false
		}
	}
	return true
}

// patience is upto, or the place up to which bytes have waited for long enough, if that is later.
func (f *Filter) patience(upto int64) int64 {
	now := f.now()
	if f.timed < f.end() {
		f.timed = f.end()
		if n := len(f.marks); n > 0 && now.Sub(f.marks[n-1].when) < Patience/20 {
			f.marks[n-1].upto = f.timed
		} else {
			f.marks = append(f.marks, mark{f.timed, now})
		}
	}
	old := f.sent
	for len(f.marks) > 0 && now.Sub(f.marks[0].when) >= Patience {
		old = f.marks[0].upto
		f.marks = f.marks[1:]
	}
	for _, p := range f.parts {
		if !p.full && f.end()-p.from >= held {
			old = min(old, p.from)
		}
	}
	if old > upto {
		f.expire(old)
		upto = old
	}
	return upto
}

// expire decides what begins before a place as if the text ended here.
func (f *Filter) expire(before int64) {
	for _, r := range f.runs {
		if r.hold < 0 || r.hold >= before {
			continue
		}
		if r.rule.machine.ends(r.s) {
			r.end = f.end()
		}
		f.decide(r, f.end())
	}
}

// trim forgets what is not needed any more.
func (f *Filter) trim() {
	keep := f.sent - behind
	for _, p := range f.parts {
		keep = min(keep, p.from)
	}
	for _, r := range f.runs {
		keep = min(keep, r.from-behind)
	}
	if keep > f.base {
		f.buf = f.buf[:copy(f.buf, f.from(keep))]
		f.base = keep
	}
	for len(f.marks) > 0 && f.marks[0].upto <= f.sent {
		f.marks = f.marks[1:]
	}
}
