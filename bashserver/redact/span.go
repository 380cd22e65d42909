package redact

// span is a part of the stream that is secret.
type span struct {
	from, to int64
	name     int
	rule     bool
	marked   bool // the mark is out, the rest is dropped as it comes
}

// cover notes a secret. Those that overlap become one: no byte of any is passed on. A value's name goes before a rule's,
// then a longer one's before a shorter.
func (f *Filter) cover(s span) {
	if s.to <= f.sent {
		return
	}
	// The mark of what was taken out last stands for this too, unless something was passed on behind it.
	s.marked = s.marked || s.from < f.last && f.last == f.sent
	i := len(f.spans)
	for i > 0 && f.spans[i-1].to > s.from {
		i--
	}
	j := i
	for ; j < len(f.spans) && f.spans[j].from < s.to; j++ {
		o := f.spans[j]
		if o.marked || o.rule == s.rule && o.to-o.from >= s.to-s.from || !o.rule && s.rule {
			s.name, s.rule = o.name, o.rule
		}
		s.from, s.to, s.marked = min(s.from, o.from), max(s.to, o.to), s.marked || o.marked
	}
	f.spans = append(f.spans[:i], append([]span{s}, f.spans[j:]...)...)
}

// emit passes on everything before upto.
func (f *Filter) emit(upto int64) error {
	var out []byte
	for f.sent < upto {
		if len(f.spans) == 0 || f.spans[0].from >= upto {
			text := f.from(f.sent)[:upto-f.sent]
			f.sent = upto
			if out == nil { // the usual case, without a copy
				_, err := f.dst.Write(text)
				return err
			}
			out = append(out, text...)
			break
		}
		s := &f.spans[0]
		if s.from > f.sent {
			out = append(out, f.from(f.sent)[:s.from-f.sent]...)
			f.sent = s.from
		}
		if !s.marked {
			out = append(append(append(out, "[redacted:"...), f.set.names[s.name]...), ']')
			s.marked = true
			f.counts[s.name]++
		}
		f.sent = max(f.sent, min(s.to, upto))
		f.last = f.sent
		if f.sent >= s.to {
			f.spans = f.spans[1:]
		}
	}
	if len(out) == 0 {
		return nil
	}
	_, err := f.dst.Write(out)
	return err
}
