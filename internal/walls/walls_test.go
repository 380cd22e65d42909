package walls

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sharness/sharness/"

// source is what one package imports, without its tests.
type source struct {
	imports map[string]string            // import path to a file that has it
	used    map[string]map[string]string // import path to the names used of it, and where
}

// readSource parses every package of the module.
func readSource(t *testing.T) map[string]*source {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*source{}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && name != root) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(rel))
		if out[pkg] == nil {
			out[pkg] = &source{imports: map[string]string{}, used: map[string]map[string]string{}}
		}
		out[pkg].add(rel, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *source) add(rel string, file *ast.File) {
	local := map[string]string{}
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser took it for a string
		}
		s.imports[name] = rel
		short := path.Base(name)
		if spec.Name != nil {
			short = spec.Name.Name
		}
		local[short] = name
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && local[x.Name] != "" {
			of := local[x.Name]
			if s.used[of] == nil {
				s.used[of] = map[string]string{}
			}
			s.used[of][sel.Sel.Name] = rel
		}
		return true
	})
}

// room finds the row of a package.
func room(pkg string) (Room, bool) {
	for _, r := range Rooms {
		if r.Path == pkg {
			return r, true
		}
		if below, ok := strings.CutSuffix(r.Path, "/..."); ok && (pkg == below || strings.HasPrefix(pkg, below+"/")) {
			r.Ours = append(slices.Clone(r.Ours), below)
			return r, true
		}
	}
	return Room{}, false
}

// outside are the packages that reach the operating system; harmless are below net and do not.
var (
	outside  = []string{"os", "net", "syscall", "unsafe", "golang.org/x/sys", "plugin"}
	harmless = []string{"net/netip", "net/url", "net/mail"}
)

// violations applies one row to what a package imports.
func violations(pkg string, r Room, s *source) []string {
	var out []string
	for name, file := range s.imports {
		ours, isOurs := strings.CutPrefix(name, module)
		switch {
		case isOurs && !slices.Contains(r.Ours, ours):
			out = append(out, fmt.Sprintf("%s imports %s (%s)", pkg, ours, file))
		case !r.C && (name == "C" || strings.HasPrefix(name, "github.com/seccomp/libseccomp-golang")):
			out = append(out, fmt.Sprintf("%s needs cgo: it imports %s (%s)", pkg, name, file))
		case r.Pure && !slices.Contains(harmless, name) && slices.ContainsFunc(outside, func(o string) bool { return name == o || strings.HasPrefix(name, o+"/") }):
			out = append(out, fmt.Sprintf("%s is not pure: it imports %s (%s)", pkg, name, file))
		}
		names, limited := r.Borrows[ours]
		if !isOurs || !limited {
			continue
		}
		for used, where := range s.used[name] {
			if !slices.Contains(names, used) {
				out = append(out, fmt.Sprintf("%s uses %s.%s (%s), and may borrow only %s", pkg, ours, used, where, strings.Join(names, ", ")))
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestEveryPackageStaysInItsRoom(t *testing.T) {
	for pkg, s := range readSource(t) {
		r, ok := room(pkg)
		if !ok {
			t.Errorf("%s has no row in the table: decide what it may import", pkg)
			continue
		}
		for _, v := range violations(pkg, r, s) {
			t.Error(v)
		}
	}
}

func TestStaticProgramsReachNoC(t *testing.T) {
	sources := readSource(t)
	for _, program := range Static {
		seen := map[string]bool{}
		var visit func(pkg, way string)
		visit = func(pkg, way string) {
			if seen[pkg] || sources[pkg] == nil {
				return
			}
			seen[pkg] = true
			for name := range sources[pkg].imports {
				if name == "C" || strings.HasPrefix(name, "github.com/seccomp/libseccomp-golang") {
					t.Errorf("%s contains C: %s", program, way)
				}
				if ours, ok := strings.CutPrefix(name, module); ok {
					visit(ours, way+" -> "+ours)
				}
			}
		}
		visit(program, program)
	}
}

func TestTheTableRunsOneWay(t *testing.T) {
	var visit func(pkg string, way []string)
	visit = func(pkg string, way []string) {
		if slices.Contains(way, pkg) {
			t.Fatalf("the table has a circle: %v -> %s", way, pkg)
		}
		r, _ := room(pkg)
		for _, next := range r.Ours {
			if strings.HasPrefix(next, "cmd/") {
				t.Errorf("%s may import %s: a command is imported by nobody", pkg, next)
			}
			if next != pkg {
				visit(next, append(slices.Clone(way), pkg))
			}
		}
	}
	for _, r := range Rooms {
		visit(strings.TrimSuffix(r.Path, "/..."), nil)
	}
}

func TestTheWallsHoldSomething(t *testing.T) {
	s := &source{
		imports: map[string]string{"os/exec": "a.go", "C": "a.go", module + "launcher": "a.go", module + "bashserver": "a.go", "strings": "a.go"},
		used:    map[string]map[string]string{module + "bashserver": {"Config": "a.go", "Serve": "a.go"}},
	}
	r := Room{Path: "x", Pure: true, Ours: []string{"bashserver"}, Borrows: map[string][]string{"bashserver": {"Config"}}}
	if got := violations("x", r, s); len(got) != 4 {
		t.Errorf("got %q, want the four that are wrong", got)
	}
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Errorf("the walls are not read from the module's root: %v", err)
	}
}
