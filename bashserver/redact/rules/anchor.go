package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// anchor is where the search for a rule begins: at one of a few texts of three to eight bytes, letters in lower case.
//
//   - Most rules begin with a fixed text, once what may be missing in front of it (the rest of a variable's name) is
//     taken away: that is the gate.
//   - A few begin with anything and have their fixed text later, at a known distance: backMin to backMax bytes.
//   - A few have none at all, and gitleaks looks for a keyword anywhere in the file. Here it has to stand in front, on
//     the same line (near).
type anchor struct {
	gate             string
	begin            []string
	backMin, backMax int
	near             bool
}

// maxBeginnings is how many are still worth looking for; maxBranches how many ways a longer one may go on; maxSpread how
// many places a text in the middle may mean.
const (
	maxBeginnings = 128
	maxBranches   = 2
	maxSpread     = 4
)

var errBeginnings = errors.New("too many beginnings")

func anchorOf(regex string, keywords []string) (anchor, error) {
	if _, err := regexp.Compile(regex); err != nil {
		return anchor{}, err
	}
	re, err := syntax.Parse(regex, syntax.Perl)
	if err != nil {
		return anchor{}, err
	}
	re = strip(re)
	a := anchor{gate: re.String()}
	if a.begin, err = beginnings(re); err == nil {
		return a, nil
	}
	for _, m := range middles(re) {
		if m.max-m.min > maxSpread {
			break
		}
		if a.begin, err = beginnings(m.rest); err == nil {
			a.backMin, a.backMax = m.min, m.max
			return a, nil
		}
	}
	if len(keywords) == 0 {
		return anchor{}, errors.New("nothing in it is fixed, and it has no keyword")
	}
	a.near = true
	a.begin = nil
	for _, k := range keywords {
		if len(k) < 3 {
			return anchor{}, fmt.Errorf("the keyword %q is too short to stand alone", k)
		}
		a.begin = append(a.begin, fold(k[:min(8, len(k))]))
	}
	slices.Sort(a.begin)
	a.begin = slices.Compact(a.begin)
	return a, nil
}

// strip takes away what may be missing at the front.
func strip(re *syntax.Regexp) *syntax.Regexp {
	switch re.Op {
	case syntax.OpConcat:
		for len(re.Sub) > 1 && optional(re.Sub[0]) {
			re.Sub = re.Sub[1:]
		}
		re.Sub[0] = strip(re.Sub[0])
	case syntax.OpAlternate:
		for i := range re.Sub {
			re.Sub[i] = strip(re.Sub[i])
		}
	case syntax.OpCapture:
		re.Sub[0] = strip(re.Sub[0])
	}
	return re
}

func optional(re *syntax.Regexp) bool {
	return re.Op == syntax.OpStar || re.Op == syntax.OpQuest || re.Op == syntax.OpRepeat && re.Min == 0
}

// middle is the rest of a pattern, behind min to max bytes.
type middle struct {
	min, max int
	rest     *syntax.Regexp
}

// middles are the places of a concatenation, also inside a group, that lie at a known distance.
func middles(re *syntax.Regexp) []middle {
	if re.Op != syntax.OpConcat {
		return nil
	}
	var out []middle
	lo, hi := 0, 0
	for i, sub := range re.Sub {
		rest := &syntax.Regexp{Op: syntax.OpConcat, Flags: re.Flags, Sub: re.Sub[i:]}
		if i > 0 {
			out = append(out, middle{lo, hi, rest})
		}
		inner := sub
		for inner.Op == syntax.OpCapture {
			inner = inner.Sub[0]
		}
		for _, m := range middles(inner) {
			out = append(out, middle{lo + m.min, hi + m.max, &syntax.Regexp{Op: syntax.OpConcat, Flags: re.Flags, Sub: append([]*syntax.Regexp{m.rest}, re.Sub[i+1:]...)}})
		}
		min, max, ok := width(sub)
		if !ok {
			break
		}
		lo, hi = lo+min, hi+max
	}
	return out
}

// width is how many bytes a part of ASCII matches.
func width(re *syntax.Regexp) (min, max int, ok bool) {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpNoWordBoundary, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
		return 0, 0, true
	case syntax.OpLiteral:
		return len(re.Rune), len(re.Rune), true
	case syntax.OpCharClass:
		return 1, 1, true
	case syntax.OpCapture:
		return width(re.Sub[0])
	case syntax.OpQuest:
		_, max, ok = width(re.Sub[0])
		return 0, max, ok
	case syntax.OpRepeat:
		min, max, ok = width(re.Sub[0])
		return min * re.Min, max * re.Max, ok && re.Max >= 0
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			a, b, ok := width(sub)
			if !ok {
				return 0, 0, false
			}
			min, max = min+a, max+b
		}
		return min, max, true
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			a, b, ok := width(sub)
			if !ok {
				return 0, 0, false
			}
			if i == 0 || a < min {
				min = a
			}
			if b > max {
				max = b
			}
		}
		return min, max, true
	}
	return 0, 0, false
}

// beginnings are what re can begin with, folded: three bytes, and up to eight as long as few can follow.
func beginnings(re *syntax.Regexp) ([]string, error) {
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	level := []beginning{{pcs: []uint32{uint32(prog.Start)}}}
	for range 3 {
		var next []beginning
		for _, b := range level {
			for _, n := range follow(prog, b.pcs) {
				if n.open || len(next) > maxBeginnings {
					return nil, errBeginnings
				}
				next = append(next, beginning{b.text + string([]byte{n.b}), n.pcs})
			}
		}
		level = next
	}
	for _, b := range level {
		extend(prog, b.text, b.pcs, found)
	}
	if len(found) > maxBeginnings {
		return nil, errBeginnings
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// beginning is a text and where it leads.
type beginning struct {
	text string
	pcs  []uint32
}

func extend(prog *syntax.Prog, s string, pcs []uint32, found map[string]bool) {
	next := follow(prog, pcs)
	if len(s) == 8 || len(next) == 0 || len(next) > maxBranches || slices.ContainsFunc(next, func(n branch) bool { return n.open }) {
		found[s] = true
		return
	}
	for _, n := range next {
		extend(prog, s+string([]byte{n.b}), n.pcs, found)
	}
}

// branch is a byte that may come next, and where that leads; open, if anything may come, or the match may end.
type branch struct {
	b    byte
	pcs  []uint32
	open bool
}

func follow(prog *syntax.Prog, pcs []uint32) []branch {
	next := map[byte][]uint32{}
	open := false
	seen := make([]bool, len(prog.Inst))
	var walk func(pc uint32)
	walk = func(pc uint32) {
		if seen[pc] {
			return
		}
		seen[pc] = true
		in := &prog.Inst[pc]
		switch in.Op {
		case syntax.InstFail:
		case syntax.InstMatch:
			open = true
		case syntax.InstAlt, syntax.InstAltMatch:
			walk(in.Out)
			walk(in.Arg)
		case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
			walk(in.Out)
		default:
			open = open || in.MatchRune('é')
			for c := range rune(0x80) {
				if b := byte(c | 0x20); in.MatchRune(c) && !slices.Contains(next[b], in.Out) {
					next[b] = append(next[b], in.Out)
				}
			}
		}
	}
	for _, pc := range pcs {
		walk(pc)
	}
	if open && len(next) == 0 {
		return []branch{{open: true}}
	}
	var out []branch
	for _, b := range slices.Sorted(maps.Keys(next)) {
		out = append(out, branch{b, next[b], open})
	}
	return out
}

// fold is what redact does with the text, eight bytes at a time: letters become lower case, others something else.
func fold(s string) string {
	return strings.Map(func(r rune) rune { return r | 0x20 }, s)
}
