package redact

import "time"

// mark says when bytes came.
type mark struct {
	upto int64
	when time.Time
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
