package manifest

import (
	"cmp"
	"embed"
	"fmt"
	"runtime"
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
	Native   []string   `yaml:"native,omitempty"`
	Embedded []Embedded `yaml:"embedded,omitempty"`
	Manifest Manifest   `yaml:",inline"`

	source Document // the profile's own text; its manifest is not used
}

// Embedded is a shared object within the program itself, which would unpack it into /tmp under a new name at each start:
// where nothing may be mapped executable, and where it could not be pinned. Who makes a manifest unpacks it beforehand.
type Embedded struct {
	Soname string `yaml:"soname"` // its DT_SONAME, by which it is found
	Path   string `yaml:"path"`   // where the program looks for it, relative to the folder that Env names; may hold {{arch}}
	Env    string `yaml:"env"`    // variable that tells the program the folder
}

// Place is Path for this processor. {{arch}} is the name that node and Bun give it.
func (e Embedded) Place() (string, error) { return Expand(e.Path, map[string]string{"arch": nodeArch}) }

var nodeArch = cmp.Or(map[string]string{"amd64": "x64", "ppc64le": "ppc64"}[runtime.GOARCH], runtime.GOARCH)

// fragmentKeys are the keys that a profile has and a manifest has not.
var fragmentKeys = []string{"native", "embedded"}

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
	for i, e := range f.Embedded {
		c.embedded(at("embedded", i), e)
	}
	f.Manifest.check(c, true)
	return c.result()
}

func (c *checker) embedded(key string, e Embedded) {
	c.text(key+".soname", e.Soname)
	if e.Soname == "" {
		c.fail(key+".soname", found("nothing", "the name of a library"))
	}
	place, err := e.Place()
	if err != nil {
		c.fail(key+".path", err.Error())
	}
	c.subpath(key+".path", place)
	if !envName.MatchString(e.Env) {
		c.fail(key+".env", found(quote(e.Env), "the name of a variable"))
	}
}

// Document returns a manifest that says want and keeps the text of the profile, comments and all, for what both agree on.
func (f *Fragment) Document(file string, want *Manifest) (*Document, error) {
	d, err := (&Document{name: file}).reread(f.source.without(fragmentKeys))
	if err != nil {
		return nil, err
	}
	return d, d.Set(want)
}

// without is the text without some keys and the remarks above each.
func (d *Document) without(keys []string) []byte {
	type span struct{ from, to int }
	var spans []span
	for _, key := range keys {
		if from, to, ok := d.section(key); ok {
			spans = append(spans, span{d.remarks(from), to})
		}
	}
	// From the end to the beginning, so that no cut moves the place of another.
	slices.SortFunc(spans, func(a, b span) int { return b.from - a.from })
	text := d.text
	for _, s := range spans {
		text = splice(text, s.from, s.to, "")
	}
	return text
}
