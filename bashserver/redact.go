package bashserver

import "io"

// Filter is a writer that replaces every occurrence of a secret by [redacted:NAME] before it passes bytes on. It holds
// back only a tail that may be the beginning of a secret, so that it does not matter where chunks are cut. Occurrences
// that overlap become one mark: no byte of any occurrence is passed on. A Filter serves one stream.
type Filter struct {
	dst    io.Writer
	m      *matcher
	state  int32
	held   []byte // bytes from base on that are not passed on yet
	buf    [64]byte
	base   int64  // offset in the stream of held[0]
	spans  []span // parts of held that are secret, in order, disjoint
	out    []byte
	Counts []uint64 // occurrences of each secret, in the order of the config
}

type span struct {
	from, to int64
	secret   int
	marked   bool // the mark is out, the rest is dropped as it comes
}

func newFilter(dst io.Writer, m *matcher) *Filter {
	return &Filter{dst: dst, m: m, Counts: make([]uint64, len(m.secrets))}
}

// Write passes on what is certain. Its error is that of the writer behind it.
func (f *Filter) Write(p []byte) (int, error) {
	for i := 0; i < len(p); {
		if f.state == 0 { // nothing is held here
			j := i
			for j < len(p) && f.m.root[p[j]] == 0 {
				j++
			}
			if i == 0 && j == len(p) { // the usual case, without a copy
				f.base += int64(len(p))
				return f.dst.Write(p)
			}
			f.base += int64(j - i)
			f.out = append(f.out, p[i:j]...)
			if i = j; i == len(p) {
				break
			}
		}
		f.held = append(f.held, p[i])
		pos := f.base + int64(len(f.held))
		f.state = f.m.step(f.state, p[i])
		i++
		if h := f.m.nodes[f.state].hit; h != 0 {
			f.mark(pos, int(h-1))
		}
		f.state = f.m.proper(f.state)
		f.release(pos - int64(f.m.nodes[f.state].depth))
	}
	return len(p), f.send()
}

// Close passes on what is held: the stream has ended, so it is no secret. It does not close the writer behind.
func (f *Filter) Close() error {
	f.release(f.base + int64(len(f.held)))
	f.state = 0
	return f.send()
}

func (f *Filter) send() error {
	if len(f.out) == 0 {
		return nil
	}
	_, err := f.dst.Write(f.out)
	f.out = f.out[:0]
	return err
}

// mark notes that the secret ends at offset to.
func (f *Filter) mark(to int64, secret int) {
	f.Counts[secret]++
	s := span{to - int64(len(f.m.secrets[secret].Value)), to, secret, false}
	for n := len(f.spans); n > 0 && f.spans[n-1].to > s.from; n-- {
		// The new one may begin earlier and cover several; one that is marked begins before everything held.
		last := f.spans[n-1]
		if last.marked || last.to-last.from >= s.to-s.from {
			s.secret = last.secret
		}
		s.from, s.marked = min(s.from, last.from), s.marked || last.marked
		f.spans = f.spans[:n-1]
	}
	f.spans = append(f.spans, s)
}

// release passes on everything before offset upto. No later match can begin before it.
func (f *Filter) release(upto int64) {
	from := 0
	for at := f.base; at < upto; {
		end := upto
		switch {
		case len(f.spans) == 0 || f.spans[0].from >= upto:
			f.out = append(f.out, f.held[from:from+int(end-at)]...)
		case at < f.spans[0].from:
			end = f.spans[0].from
			f.out = append(f.out, f.held[from:from+int(end-at)]...)
		default:
			s := &f.spans[0]
			if !s.marked {
				f.out = append(append(append(f.out, "[redacted:"...), f.m.secrets[s.secret].Name...), ']')
				s.marked = true
			}
			if end = min(s.to, upto); end == s.to {
				f.spans = f.spans[1:]
			}
		}
		from += int(end - at)
		at = end
	}
	f.base += int64(from)
	if f.held = f.held[from:]; len(f.held) == 0 {
		f.held = f.buf[:0]
	}
}
