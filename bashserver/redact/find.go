package redact

import "math/bits"

// part is a value that has begun and may go on.
type part struct {
	form *form
	from int64
	full bool // it is there; only its end is not clear
}

// zone is where a rule applies because of a keyword in front.
type zone struct {
	rule     *rule
	name     int
	at, upto int64
}

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
