package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sharness/sharness/manifest"
)

func TestManPagesCoverEveryCommandAndItsFlags(t *testing.T) {
	dir := t.TempDir()
	root := newRootCmd()
	if err := writeMan(root, dir); err != nil {
		t.Fatal(err)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
		page, err := os.ReadFile(filepath.Join(dir, manName(c)+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		_, text, ok := strings.Cut(string(page), ".SH SYNOPSIS\n.B "+roff(c.CommandPath()))
		if !strings.HasPrefix(string(page), ".TH SHARNESS") || !ok {
			t.Errorf("%s: got\n%s", c.CommandPath(), page)
		}
		synopsis, _, _ := strings.Cut(text, "\n")
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name := roff("--" + f.Name)
			if f.Hidden {
				return
			}
			if !strings.Contains(text, name+" ") && !strings.Contains(text, name+"\n") {
				t.Errorf("%s: --%s is in no page", c.CommandPath(), f.Name)
			}
			short := f.Shorthand != "" && strings.Contains(synopsis, roff("-"+f.Shorthand)+" ")
			if !strings.Contains(synopsis, name) && !short && !strings.Contains(synopsis, "[OPTION]…") && f.Name != "help" {
				t.Errorf("%s: the synopsis %q says nothing of --%s", c.CommandPath(), synopsis, f.Name)
			}
		})
	}
	walk(root)
	for page, want := range map[string]string{
		"sharness-enforce.1": `.B \-\-allow\-open DOOR`, "sharness.1": `sharness\-bash(1), sharness\-completion(1)`, "sharness-serve.1": `sharness\-bash(1)`,
		"sharness-manifest-new.1": `.B sharness manifest new [OPTION]… \-\- CMD [ARG…]`, "sharness-manifest-allow.1": `.B sharness manifest allow [OPTION]… \-m FILE`,
	} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s: want %q in\n%s", page, want, text)
		}
	}
}

func TestRoffEscapesWhatWouldBeAMacro(t *testing.T) {
	for in, want := range map[string]string{".so /etc/shadow": `\&.so /etc/shadow`, "'x": `\&'x`, `a\fB-b`: `a\efB\-b`} {
		if got := roff(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestManualNamesEveryKeyOfTheManifest holds the table of docs/manual.md against the schema, in both directions.
func TestManualNamesEveryKeyOfTheManifest(t *testing.T) {
	text, err := os.ReadFile("../../docs/manual.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "\n| key | meaning | default |\n")
	if !ok {
		t.Fatal("no table of keys in the manual")
	}
	named := map[string]bool{}
	for row := range strings.Lines(table) {
		if !strings.HasPrefix(row, "|") {
			break
		}
		// `sandbox.pids`, `memory`: what follows the first name in a cell is short for its siblings.
		parent := ""
		for i, word := range strings.Split(strings.Split(row, "|")[1], "`") {
			if i%2 == 0 {
				continue
			}
			if dot := strings.LastIndex(word, "."); dot >= 0 {
				parent = word[:dot+1]
			} else {
				word = parent + word
			}
			named[word] = true
		}
	}
	keys := map[string]bool{"version": true}
	named["version"] = true // in the text above the table
	var walk func(path string, raw json.RawMessage)
	walk = func(path string, raw json.RawMessage) {
		var schema struct{ Properties map[string]json.RawMessage }
		if err := json.Unmarshal(raw, &schema); err != nil {
			t.Fatal(err)
		}
		whole := named[path] // described with all that is in it
		for key, below := range schema.Properties {
			sub := strings.TrimPrefix(path+"."+key, ".")
			keys[sub] = true
			named[sub] = named[sub] || whole
			walk(sub, below)
			named[path] = named[path] || named[sub]
		}
	}
	walk("", manifest.Schema())
	delete(named, "")
	for key := range keys {
		if !named[key] {
			t.Errorf("%s: a key that the manual does not name", key)
		}
	}
	for key := range named {
		if !keys[key] && named[key] {
			t.Errorf("%s: in the manual, and no key", key)
		}
	}
}
