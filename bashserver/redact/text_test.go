package redact

import (
	"strings"
	"testing"
)

func shown(neutralise, refuse bool, chunks ...string) (string, *Text) {
	var out appender
	x := NewText(&out)
	x.Neutralise, x.Refuse = neutralise, refuse
	for _, c := range chunks {
		x.Write([]byte(c))
	}
	x.Close()
	return string(out), x
}

func TestSequencesThatActAreMadeVisible(t *testing.T) {
	for _, tc := range []struct {
		name, in, out string
		n             uint64
	}{
		{"text", "ä → 😀\r\n\t\b", "ä → 😀\r\n\t\b", 0},
		{"colour", "\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mx", "\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mx", 0},
		{"progress", "\r\x1b[2K 45%\x1b[1A\x1b[10;20H", "\r\x1b[2K 45%\x1b[1A\x1b[10;20H", 0},
		{"screen", "\x1b[?1049h\x1b[?25l\x1b(0\x1b(B\x1b7\x1b8", "\x1b[?1049h\x1b[?25l\x1b(0\x1b(B\x1b7\x1b8", 0},
		{"clipboard", "\x1b]52;c;eA==\a", "^[]52;c;eA==\a", 1},
		{"title", "\x1b]0;title\x1b\\", "^[]0;title^[\\", 2},
		{"link", "\x1b]8;;http://x\a", "^[]8;;http://x\a", 1},
		{"device control", "\x1bP+q544e\x1b\\", "^[P+q544e^[\\", 2},
		{"program command", "\x1b_Gf=100;x\x1b\\\x1b^x\x1bXx", "^[_Gf=100;x^[\\^[^x^[Xx", 4},
		{"reset", "\x1bc", "^[c", 1},
		{"question", "\x1b[6n\x1b[c\x1b[>c\x1b[21t", "^[[6n^[[c^[[>c^[[21t", 4},
		{"print", "\x1b[5i", "^[[5i", 1},
		{"mouse and paste", "\x1b[?1000h\x1b[?25;2004h", "^[[?1000h^[[?25;2004h", 2},
		{"C1", "\u009b6n\u009d52;c;eA==\u009c", "^[[6n^[]52;c;eA==^[\\", 3},
		{"cut by another", "\x1b[\x1b]0;x\a", "^[[^[]0;x\a", 2},
		{"without an end", "\x1b[12", "^[[12", 1},
		{"endless", "\x1b[" + strings.Repeat("1;", 60) + "m", "^[[" + strings.Repeat("1;", 60) + "m", 1},
	} {
		if got, x := shown(true, false, tc.in); got != tc.out || x.Neutralised != tc.n {
			t.Errorf("%s: %q gives %q with %d, want %q with %d", tc.name, tc.in, got, x.Neutralised, tc.out, tc.n)
		}
		for i := range tc.in {
			if got, x := shown(true, false, tc.in[:i], tc.in[i:]); got != tc.out || x.Neutralised != tc.n {
				t.Errorf("%s, cut at %d: %q with %d, want %q", tc.name, i, got, x.Neutralised, tc.out)
			}
		}
		if got, _ := shown(true, false, strings.Split(tc.in, "")...); got != tc.out {
			t.Errorf("%s, byte by byte: %q, want %q", tc.name, got, tc.out)
		}
		if got, x := shown(false, false, tc.in); got != tc.in || x.Neutralised != 0 {
			t.Errorf("%s: not asked for, and %q", tc.name, got)
		}
	}
}

func TestBinaryOutputIsPassedOrRefusedWhole(t *testing.T) {
	const in = "\x7fELF\x02\x00\xff\xfe more"
	if got, x := shown(false, false, in); got != in || !x.Binary {
		t.Errorf("passed: %q, binary %v", got, x.Binary)
	}
	if got, x := shown(false, true, in, "even more"); got != "\x7fELF\x02"+Refused || !x.Binary {
		t.Errorf("refused: %q, binary %v", got, x.Binary)
	}
	if got, x := shown(false, true, "no NUL \xff"); got != "no NUL \xff" || x.Binary {
		t.Errorf("text: %q, binary %v", got, x.Binary)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("a\x1b]52;c;eA==\a\u009b6n\x1b[31m"), uint(3))
	f.Fuzz(func(t *testing.T, in []byte, cut uint) {
		i := int(cut % uint(len(in)+1))
		whole, _ := shown(true, false, string(in))
		parts, _ := shown(true, false, string(in[:i]), string(in[i:]))
		if whole != parts {
			t.Fatalf("cut at %d: %q, whole %q", i, parts, whole)
		}
		if again, x := shown(true, false, whole); again != whole || x.Neutralised != 0 {
			t.Fatalf("%q became %q, in which %d sequences act", in, whole, x.Neutralised)
		}
	})
}
