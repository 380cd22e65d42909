package redact

import (
	"io"
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
