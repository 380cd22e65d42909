package redact

import (
	"encoding/binary"
	"fmt"
	"regexp/syntax"
	"sync"
	"sync/atomic"
)

// machine says of a pattern, byte by byte, whether a match that begins at one place can still come about. It is an
// automaton made while it runs: each state that the text leads to is worked out once, then a byte costs two loads. Go's
// regexp would take as long for the first byte as this for a hundred, and could not say "not yet". It has no groups, but
// knows whether a byte may belong to one.
//
// Matches are the ones of Go's regexp (leftmost, then the order of the alternatives). A NUL and an ESC count as a line's
// end: output separates with them what files separate by white space. All bytes above 0x7f count as one letter that is
// no word character.
type machine struct {
	prog   *syntax.Prog
	groups bool   // it has any
	secret []bool // by instruction: a group has begun; all true in a pattern without groups
	class  [256]uint8
	bytes  []rune // of each class, one

	mu     sync.Mutex
	states map[string]*state
	begin  [4]atomic.Pointer[state] // by what stands in front
}

// state is what is known between two bytes.
type state struct {
	next    []atomic.Pointer[state] // by class
	pcs     []uint32                // the preferred first
	prev    uint8
	matched bool // a match ended in front of the byte that led here
	inside  bool // that byte may belong to a group, or stand behind one
}

// What stands in front of a byte.
const (
	atBegin = iota
	afterWord
	afterLine
	afterOther
)

var prevRune = [...]rune{-1, 'a', '\n', ' '}

// maxStates bounds what one machine keeps, to about 200 KiB. Beyond it starts afresh.
const maxStates = 512

// high stands for every byte above 0x7f.
const high = '§'

func normal(b byte) rune {
	switch {
	case b == 0 || b == 0x1b:
		return '\n'
	case b >= 0x80:
		return high
	}
	return rune(b)
}

func prevOf(b byte) uint8 {
	switch r := normal(b); {
	case r == '\n':
		return afterLine
	case syntax.IsWordChar(r):
		return afterWord
	}
	return afterOther
}

func newMachine(regex string) (*machine, error) {
	re, err := syntax.Parse(regex, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	m := &machine{prog: prog, states: map[string]*state{}}
	m.secret, m.groups = groups(prog)
	m.classes()
	for i := range m.begin {
		m.begin[i].Store(m.intern([]uint32{uint32(prog.Start)}, uint8(i), false, false))
	}
	return m, nil
}

// must is newMachine for the patterns of rules_gen.go, of which a test has tried all.
func must(regex string) *machine {
	m, err := newMachine(regex)
	if err != nil {
		panic("redact: " + regex + ": " + err.Error())
	}
	return m
}

// in says whether a text has a match that begins at its beginning.
func (m *machine) in(text []byte) bool {
	s := m.begin[atBegin].Load()
	for _, b := range text {
		if s = m.step(s, b); s.matched {
			return true
		}
		if s.dead() {
			return false
		}
	}
	return m.ends(s)
}

// match is how long the match is that a text begins with, behind what stands in front; -1: there is none.
func (m *machine) match(front uint8, text []byte) int {
	s, end := m.begin[front].Load(), -1
	for i, b := range text {
		if s = m.step(s, b); s.matched {
			end = i
		}
		if s.dead() {
			return end
		}
	}
	if m.ends(s) {
		return len(text)
	}
	return end
}

// groups marks what can only be reached by opening a group.
func groups(prog *syntax.Prog) (in []bool, any bool) {
	in = make([]bool, len(prog.Inst))
	var follow func(pc uint32)
	follow = func(pc uint32) {
		if in[pc] {
			return
		}
		in[pc] = true
		switch i := &prog.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			follow(i.Out)
			follow(i.Arg)
		case syntax.InstMatch, syntax.InstFail:
		default:
			follow(i.Out)
		}
	}
	for _, i := range prog.Inst {
		if i.Op == syntax.InstCapture && i.Arg >= 2 && i.Arg%2 == 0 {
			any = true
			follow(i.Out)
		}
	}
	if !any {
		follow(uint32(prog.Start))
	}
	return in, any
}

// classes puts bytes together that no instruction tells apart.
func (m *machine) classes() {
	sets := map[string]*syntax.Inst{}
	for i := range m.prog.Inst {
		switch in := &m.prog.Inst[i]; in.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			sets[fmt.Sprint(in.Op, in.Arg, in.Rune)] = in
		}
	}
	known := map[string]uint8{}
	key := make([]byte, 0, len(sets)+1)
	list := make([]*syntax.Inst, 0, len(sets))
	for _, in := range sets {
		list = append(list, in)
	}
	for b := range 256 {
		r := normal(byte(b))
		key = append(key[:0], prevOf(byte(b)))
		for _, in := range list {
			c := byte(0)
			if in.MatchRune(r) {
				c = 1
			}
			key = append(key, c)
		}
		c, ok := known[string(key)]
		if !ok {
			c = uint8(len(known))
			known[string(key)] = c
			m.bytes = append(m.bytes, r)
		}
		m.class[b] = c
	}
}

// intern returns the one state that is so. The lock is held, or nobody else knows the machine.
func (m *machine) intern(pcs []uint32, prev uint8, matched, inside bool) *state {
	key := make([]byte, 0, 4*len(pcs)+1)
	for _, pc := range pcs {
		key = binary.LittleEndian.AppendUint32(key, pc)
	}
	flags := prev
	if matched {
		flags |= 1 << 4
	}
	if inside {
		flags |= 1 << 5
	}
	key = append(key, flags)
	s := m.states[string(key)]
	if s == nil {
		s = &state{pcs: append([]uint32(nil), pcs...), prev: prev, matched: matched, inside: inside}
		if len(pcs) > 0 {
			s.next = make([]atomic.Pointer[state], len(m.bytes))
		}
		m.states[string(key)] = s
	}
	return s
}

func (s *state) dead() bool { return s.next == nil }

// step is the state after b.
func (m *machine) step(s *state, b byte) *state {
	if n := s.next[m.class[b]].Load(); n != nil {
		return n
	}
	return m.grow(s, m.class[b])
}

func (m *machine) grow(s *state, class uint8) *state {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.states) >= maxStates {
		clear(m.states)
		for i := range m.begin {
			m.begin[i].Store(m.intern([]uint32{uint32(m.prog.Start)}, uint8(i), false, false))
		}
	}
	r := m.bytes[class]
	w := walker{m: m, seen: make([]bool, len(m.prog.Inst)), empty: syntax.EmptyOpContext(prevRune[s.prev], r)}
	for _, pc := range s.pcs {
		w.follow(pc)
	}
	var next []uint32
	taken := make([]bool, len(m.prog.Inst))
	matched, inside := false, false
	for _, pc := range w.list {
		in := &m.prog.Inst[pc]
		if in.Op == syntax.InstMatch {
			matched = true
			break // what is preferred less is out of it
		}
		if in.MatchRune(r) {
			inside = inside || m.secret[pc]
			if !taken[in.Out] {
				taken[in.Out] = true
				next = append(next, in.Out)
			}
		}
	}
	prev := uint8(afterOther)
	switch {
	case r == '\n':
		prev = afterLine
	case syntax.IsWordChar(r):
		prev = afterWord
	}
	n := m.intern(next, prev, matched, inside)
	s.next[class].Store(n)
	return n
}

// ends says whether there is a match if the text ends here.
func (m *machine) ends(s *state) bool {
	w := walker{m: m, seen: make([]bool, len(m.prog.Inst)), empty: syntax.EmptyOpContext(prevRune[s.prev], -1)}
	for _, pc := range s.pcs {
		w.follow(pc)
	}
	for _, pc := range w.list {
		if m.prog.Inst[pc].Op == syntax.InstMatch {
			return true
		}
	}
	return false
}

// walker lists, the preferred first, what can be reached without reading a byte.
type walker struct {
	m     *machine
	empty syntax.EmptyOp
	seen  []bool
	list  []uint32
}

func (w *walker) follow(pc uint32) {
	if w.seen[pc] {
		return
	}
	w.seen[pc] = true
	switch in := &w.m.prog.Inst[pc]; in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		w.follow(in.Out)
		w.follow(in.Arg)
	case syntax.InstCapture, syntax.InstNop:
		w.follow(in.Out)
	case syntax.InstEmptyWidth:
		if syntax.EmptyOp(in.Arg)&^w.empty == 0 {
			w.follow(in.Out)
		}
	case syntax.InstFail:
	default:
		w.list = append(w.list, pc)
	}
}
