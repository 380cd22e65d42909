package manifest

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed profiles/*.yaml
var profiles embed.FS

// Fragment is what a profile holds: a manifest without the parts that a host fills in (name, command, exec, libraries,
// the path of the state folder), and where the real program of a package lies.
type Fragment struct {
	// Native are path patterns relative to the folder of the resolved command. Package managers install a small
	// script as the command, which starts a binary elsewhere in the package; the binary is what is to be pinned.
	// The first pattern that matches counts.
	Native   []string `yaml:"native,omitempty"`
	Manifest Manifest `yaml:",inline"`

	source Document // the profile's own text; its manifest is not used
}

// Profiles lists the profiles there are.
func Profiles() []string {
	files, err := profiles.ReadDir("profiles")
	if err != nil {
		panic("manifest: the embedded profiles: " + err.Error())
	}
	var list []string
	for _, f := range files {
		list = append(list, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return list
}

// Profile returns the profile of that name.
func Profile(name string) (*Fragment, error) {
	if !slices.Contains(Profiles(), name) {
		return nil, fmt.Errorf("profile %s: there is none of that name, only %s", quote(name), strings.Join(Profiles(), ", "))
	}
	file := "profiles/" + name + ".yaml"
	data, err := profiles.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	return ParseFragment(file, data)
}

// ParseFragment reads a profile as strictly as Parse reads a manifest.
func ParseFragment(name string, data []byte) (*Fragment, error) {
	f := new(Fragment)
	d, err := parse(name, data, f, f.validate)
	if err != nil {
		return nil, err
	}
	f.source = Document{name: name, text: data, d: d}
	return f, nil
}

func (f *Fragment) validate() error {
	c := &checker{state: f.Manifest.State != nil}
	for _, host := range []struct {
		key     string
		written bool
	}{{"command", f.Manifest.Command != nil}, {"exec", f.Manifest.Exec != nil}, {"libraries", f.Manifest.Libraries != nil}, {"learned", f.Manifest.Learned != nil}} {
		if host.written {
			c.fail(host.key, found("a key that the host fills in", "a profile without it"))
		}
	}
	for i, p := range f.Native {
		c.text(at("native", i), p)
		if p == "" || p[0] == '/' {
			c.fail(at("native", i), found(quote(p), "a pattern relative to the folder of the command"))
		}
	}
	f.Manifest.check(c, true)
	return c.result()
}

// Document returns a manifest that says want and keeps the text of the profile, comments and all, for what both agree on.
func (f *Fragment) Document(file string, want *Manifest) (*Document, error) {
	text := f.source.text
	if from, to, ok := f.source.section("native"); ok {
		from = f.source.remarks(from)
		text = splice(text, from, to, "")
	}
	d, err := (&Document{name: file}).reread(text)
	if err != nil {
		return nil, err
	}
	return d, d.Set(want)
}
