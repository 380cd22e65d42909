package redact

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
	if a, b, ok := r.rule.secret(text, int(r.from-from), int(r.end-from)); ok && a < b {
		f.done[r.name] = from + int64(b)
		f.cover(span{from: from + int64(a), to: from + int64(b), name: r.name, rule: true})
	}
}
