package manifest

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustParse(t *testing.T, text string) *Manifest {
	t.Helper()
	m, err := Parse("m.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// golden compares with a file, or writes it when SHARNESS_GOLDEN=write.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if os.Getenv("SHARNESS_GOLDEN") == "write" {
		if err := os.WriteFile(filepath.Join("testdata", name), got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, name); string(want) != string(got) {
		t.Errorf("%s:\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

func TestFormatWritesTheCanonicalForm(t *testing.T) {
	m := mustParse(t, string(read(t, "full.yaml")))
	golden(t, "full.golden", Format(m))
	again := mustParse(t, string(Format(m)))
	if !reflect.DeepEqual(m.sorted(), again.sorted()) {
		t.Errorf("read back otherwise:\n%+v\n%+v", m, again)
	}
	if second := Format(again); string(second) != string(Format(m)) {
		t.Errorf("Format of its own output differs:\n%s", second)
	}
}

func TestWithDefaultsFillsWhatIsMissing(t *testing.T) {
	m := mustParse(t, small+"connect: [{name: a.b, port: 443}, {name: '::1', port: 80}]\n")
	before := string(Format(m))
	golden(t, "defaults.golden", Format(m.WithDefaults()))
	if after := string(Format(m)); before != after {
		t.Errorf("the original changed:\n%s", after)
	}
	none := mustParse(t, small+"sandbox: {timeout: none}\n").WithDefaults()
	if none.Sandbox.Timeout != TimeoutNone {
		t.Errorf("timeout: got %v, want none", none.Sandbox.Timeout)
	}
}

func TestScalarsAreReadBackAsTheSameText(t *testing.T) {
	for _, s := range []string{
		"", "a", "yes", "No", "true", "null", "~", "1", "1.5", "0x1f", "1e3", "12e4567", "2026-01-01", "-", "- a", "a: b", "a #b", "#a", "a,b", "[a]",
		"{a}", "*a", "&a", "!a", "|", ">", "'", `"`, `\`, "%a", "@a", "`a`", "<<", "a\nb", " a ", "a\tb", "\u202e", "é", "\x1b[0m", "\u0085", "\U0001f600", "=", ".", ".5",
		"a\n", "a\n\nb\n", " a\nb\n", "a\n\n", "\n", "\na\n", "a\n  b\n", "a\n \nb",
	} {
		m := mustParse(t, small)
		m.Env.Set = map[string]string{"A": s}
		m.Args = []string{s}
		m.State = &State{Path: "/s", Seed: []Seed{{Path: "f", Content: s}}}
		again, err := Parse("m", Format(m))
		if err != nil {
			t.Errorf("%q: %v\n%s", s, err, Format(m))
			continue
		}
		if !reflect.DeepEqual(m, again) {
			t.Errorf("%q: read back otherwise from\n%s", s, Format(m))
		}
	}
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]Size{"1B": 1, "1024B": KiB, "3KiB": 3 * KiB, "4GiB": 4 * GiB, "2TiB": 2 * TiB, "1536MiB": 1536 * MiB} {
		got, ok := parseSize(text)
		if !ok || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, ok, want)
		}
		if again, ok := parseSize(got.String()); !ok || again != got {
			t.Errorf("%s: written as %s, read back as %d, %v", text, got, again, ok)
		}
	}
	for d, want := range map[time.Duration]string{
		10 * time.Minute: "10m", 2 * time.Hour: "2h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", time.Hour + 5*time.Second: "1h0m5s", 10 * time.Second: "10s", 20 * time.Millisecond: "20ms",
	} {
		if got := Timeout(d).String(); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}
