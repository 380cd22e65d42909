package pin

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// compile builds a C file with args; the last part of text is the source.
func compile(t *testing.T, source string, args ...string) {
	t.Helper()
	cmd := exec.Command("cc", append([]string{"-x", "c", "-"}, args...)...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cc %v: %v\n%s", args, err, out)
	}
}

// folder is a resolved temporary folder.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	emptyMain = "int main(void){return 0;}"
	callMain  = "int f(void); int main(void){return f();}"
	libF      = "int f(void){return 0;}"
)

// mapped are the libraries that the real loader takes for a program.
func mapped(t *testing.T, program string) []string {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = []string{"LD_TRACE_LOADED_OBJECTS=1"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		name, path, ok := strings.Cut(line, " => ")
		if !ok {
			path = name // a library that was named by its path, the kernel's own, or the loader
		}
		path = strings.Fields(path)[0]
		if path[0] != '/' || strings.HasPrefix(filepath.Base(path), "ld-") {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, real)
	}
	return all
}

func libraries(c *Closure) []string {
	var all []string
	for _, f := range c.Libraries {
		all = append(all, f.Path)
	}
	return all
}

// The loader itself is the reference: what it takes must be in the closure, and the closure must hold nothing more
// than that and the libraries that are opened late.
func TestResolveTakesTheLibrariesTheLoaderTakes(t *testing.T) {
	dir := folder(t)
	for _, d := range []string{"a", "b", "own"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	compile(t, libF, "-shared", "-o", dir+"/a/libf.so", "-Wl,-soname,libf.so")
	compile(t, libF, "-shared", "-o", dir+"/b/libf.so", "-Wl,-soname,libf.so")
	compile(t, libF, "-shared", "-o", dir+"/own/libslash.so")
	// libg needs libf and says itself where that is, or does not.
	compile(t, "int f(void); int g(void){return f();}", "-shared", "-o", dir+"/own/libg.so", "-L"+dir+"/a", "-lf")
	compile(t, "int f(void); int g(void){return f();}", "-shared", "-o", dir+"/own/libgrun.so", "-L"+dir+"/a", "-lf", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../b")
	callG := "int g(void); int main(void){return g();}"
	for name, args := range map[string][]string{
		"runpath":                      {"-L" + dir + "/a", "-lf", "-Wl,--enable-new-dtags,-rpath," + dir + "/b"},
		"rpath":                        {"-L" + dir + "/a", "-lf", "-Wl,--disable-new-dtags,-rpath," + dir + "/a"},
		"origin":                       {"-L" + dir + "/a", "-lf", "-Wl,-rpath,$ORIGIN/b"},
		"origin-braces":                {"-L" + dir + "/a", "-lf", "-Wl,-rpath,${ORIGIN}/a"},
		"first-missing":                {"-L" + dir + "/a", "-lf", "-Wl,-rpath,/none:$ORIGIN/b:$ORIGIN/a"},
		"rpath-inherited":              {"-L" + dir + "/own", "-lg", "-Wl,--disable-new-dtags,-rpath," + dir + "/own:" + dir + "/b", "-Wl,--allow-shlib-undefined"},
		"runpath-of-library":           {"-L" + dir + "/own", "-lgrun", "-Wl,--disable-new-dtags,-rpath," + dir + "/own:" + dir + "/a", "-Wl,--allow-shlib-undefined"},
		"slash":                        {dir + "/own/libslash.so"},
		"same-name-loaded-once":        {"-L" + dir + "/own", "-L" + dir + "/a", "-Wl,--no-as-needed", "-lf", "-lgrun", "-Wl,-rpath," + dir + "/own:" + dir + "/a", "-Wl,--allow-shlib-undefined"},
		"cache-and-default-folders":    {"-lm", "-Wl,--no-as-needed", "-lstdc++", "-lresolv"},
		"default-folders-despite-path": {"-Wl,--no-as-needed", "-lm", "-Wl,-rpath,/none"},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(dir, name)
			source := callMain
			switch {
			case slices.Contains(args, "-lg"), slices.Contains(args, "-lgrun"):
				source = callG
			case !slices.ContainsFunc(args, func(a string) bool { return a == "-lf" || strings.HasSuffix(a, "libslash.so") }):
				source = emptyMain
			}
			compile(t, source, append([]string{"-o", program}, append([]string{"-x", "none"}, args...)...)...)
			c, err := Resolve(program, "")
			if err != nil {
				t.Fatal(err)
			}
			got, want := libraries(c), mapped(t, program)
			for _, lib := range want {
				if !slices.Contains(got, lib) {
					t.Errorf("the loader takes %s, the closure lacks it: %v", lib, got)
				}
			}
			for _, lib := range got {
				isLate := slices.ContainsFunc(late, func(name string) bool { return strings.HasPrefix(filepath.Base(lib), strings.TrimSuffix(name, ".1")) })
				if !slices.Contains(want, lib) && !isLate {
					t.Errorf("the closure has %s, which the loader does not take: %v", lib, want)
				}
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	dir := folder(t)
	program := func(name, text string) string { return write(t, filepath.Join(dir, name), text, 0o755) }
	gone := filepath.Join(dir, "gone")
	compile(t, libF, "-shared", "-o", dir+"/libgone.so")
	compile(t, callMain, "-o", gone, "-L"+dir, "-lgone")
	relative := filepath.Join(dir, "relative")
	compile(t, callMain, "-o", relative, "-L"+dir, "-lgone", "-Wl,-rpath,lib")
	capable := program("capable", "#!/bin/sh\n")
	// cap_net_raw, version 2, effective.
	value := []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	if err := unix.Setxattr(capable, "security.capability", value, 0); err != nil {
		t.Fatalf("setxattr: %v", err)
	}
	deep := "/bin/sh"
	for i := range maxDepth + 1 {
		deep = program("deep"+strings.Repeat("x", i), "#!"+deep+"\n")
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ cmd, want string }{
		"no such command":       {"none-such", "command not found in " + dir},
		"no such file":          {dir + "/none", "no such file or directory"},
		"not executable":        {write(t, dir+"/plain", "x", 0o644), "permission denied: it has no execute bit; if it is a program: chmod +x " + dir + "/plain"},
		"a folder":              {dir, "not a regular file"},
		"a fifo":                {fifo, "not a regular file"},
		"a link to itself":      {loop, "too many levels of symbolic links"},
		"text":                  {program("text", "hello"), "begins with the path of its interpreter, as #!/bin/sh does): exec format error"},
		"empty":                 {program("empty", ""), "begins with the path of its interpreter, as #!/bin/sh does): exec format error"},
		"half an ELF":           {program("half", "\x7fELF\x02\x01\x01"), "half: "},
		"no interpreter":        {program("noint", "#! \n"), "names no interpreter"},
		"relative interpreter":  {program("rel", "#!sh\n"), "a relative interpreter"},
		"interpreter gone":      {program("igone", "#!/none/sh\n"), "no such file or directory"},
		"line too long":         {program("long", "#!/bin/sh "+strings.Repeat("x", 256)+"\n"), "longer than the 256 bytes"},
		"six interpreters":      {deep, "too many levels of symbolic links"},
		"env of nothing":        {program("env0", "#!/usr/bin/env\n"), "cannot tell which program"},
		"env of two words":      {program("env2", "#!/usr/bin/env sh -e\n"), "sh -e: command not found"},
		"env -i":                {program("envi", "#!/usr/bin/env -S -i sh\n"), "cannot tell which program"},
		"env with quotes":       {program("envq", "#!/usr/bin/env -S 'sh'\n"), "are not followed"},
		"library gone":          {gone, "needs libgone.so, which is nowhere"},
		"relative library path": {relative, "a relative path is whatever lies in the current folder"},
		"capabilities":          {capable, "has file capabilities"},
	} {
		t.Run(name, func(t *testing.T) {
			if row.cmd == gone {
				if err := os.Remove(dir + "/libgone.so"); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Resolve(row.cmd, dir)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %+v, %v, want an error with %q", c, err, row.want)
			}
		})
	}
	if _, err := (Options{Privileged: true}).Resolve(capable); err != nil {
		t.Errorf("capabilities that were asked for: %v", err)
	}
}

func TestResolveFollowsScriptsAndLinks(t *testing.T) {
	dir := folder(t)
	interp := filepath.Join(dir, "interp")
	compile(t, emptyMain, "-static", "-o", interp)
	script := write(t, dir+"/pkg/tool.js", "#!/usr/bin/env -S A=b interp -x\n", 0o755)
	for link, target := range map[string]string{dir + "/one": dir + "/pkg/two", dir + "/pkg/two": "tool.js"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Resolve("one", "relative::"+dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{dir + "/one", dir + "/pkg/two", script}; !slices.Equal(c.Way, want) || c.Program != script {
		t.Errorf("way %v to %s, want %v", c.Way, c.Program, want)
	}
	for path, role := range map[string]manifest.Role{script: manifest.RoleScript, interp: manifest.RoleInterpreter, "/usr/bin/env": manifest.RoleInterpreter} {
		if !slices.ContainsFunc(c.Exec, func(e manifest.Exec) bool { return e.Path == path && e.Role == role }) {
			t.Errorf("no %s %s in %+v", role, path, c.Exec)
		}
	}
	// Five interpreters in a row are what the kernel allows.
	deep := interp
	for i := range maxDepth {
		deep = write(t, dir+"/deep"+strings.Repeat("x", i), "#!"+deep+"\n", 0o755)
	}
	if _, err := Resolve(deep, ""); err != nil {
		t.Errorf("five interpreters: %v", err)
	}
	if err := exec.Command(deep).Run(); err != nil {
		t.Errorf("five interpreters, asked of the kernel: %v", err)
	}
	more := write(t, dir+"/more", "#!"+deep+"\n", 0o755)
	if err := exec.Command(more).Run(); !errors.Is(err, unix.ELOOP) {
		t.Errorf("six interpreters, asked of the kernel: got %v, want ELOOP", err)
	}
}

func TestStartsWithSaysWhatTheKernelStarts(t *testing.T) {
	dir := folder(t)
	compile(t, emptyMain, "-static", "-o", dir+"/static")
	compile(t, emptyMain, "-Wl,--dynamic-linker=/opt/none/ld.so", "-o", dir+"/dynamic")
	if err := os.Symlink("static", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir + "/static":  "",
		dir + "/dynamic": "/opt/none/ld.so",
		write(t, dir+"/a", "#! "+dir+"/link -x\n", 0o755):   dir + "/static",
		write(t, dir+"/b", "#!/usr/bin/env tool\n", 0o755):  "/usr/bin/env",
		write(t, dir+"/c", "#!/opt/none/interp\r\n", 0o755): "/opt/none/interp\r", // as the kernel reads it
	} {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := StartsWith(f, path)
		if f.Close(); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for _, text := range []string{"", "#!", "#!\n", "text\n", "\x7fELF"} {
		if got, err := StartsWith(strings.NewReader(text), "x"); err == nil {
			t.Errorf("%q: got %q, want an error", text, got)
		}
	}
}

func TestNotFoundIsToBeTestedFor(t *testing.T) {
	if _, err := Resolve("none-such", "/usr/bin"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	dir := folder(t)
	write(t, dir+"/tool", "#!/bin/sh\n", 0o644)
	if _, err := LookPath("tool", dir); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a file without x: got %v", err)
	}
	if _, err := LookPath("", "/usr/bin"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no name: got %v", err)
	}
}

func TestUserPathEndsWithTheUsersFolders(t *testing.T) {
	got := UserPath("/usr/sbin:/usr/bin", "/home/u")
	if want := "/usr/sbin:/usr/bin:/home/u/.local/bin:/home/u/bin:/home/u/.npm-global/bin:/home/u/.bun/bin:/usr/local/bin"; !strings.HasPrefix(got, want) {
		t.Errorf("got %s", got)
	}
	if got := UserPath("", ""); !strings.HasPrefix(got, "/usr/local/bin") {
		t.Errorf("no home: got %s", got)
	}
}

func TestLibraryAddsWhatAnObjectNeedsBeyondItsProgram(t *testing.T) {
	dir := folder(t)
	compile(t, libF, "-shared", "-o", dir+"/libf.so")
	compile(t, "int f(void); int g(void){return f();}", "-shared", "-o", dir+"/libg.so", "-L"+dir, "-lf", "-Wl,-rpath,$ORIGIN")
	program, static := dir+"/program", dir+"/static"
	compile(t, emptyMain, "-o", program)
	compile(t, emptyMain, "-static", "-o", static)
	files, err := Options{}.Library(dir+"/libg.so", program)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := libraries(&Closure{Libraries: files}), []string{dir + "/libf.so", dir + "/libg.so"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: libc is the program's already", got, want)
	}
	if err := os.Remove(dir + "/libf.so"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ library, program, want string }{
		{dir + "/libg.so", program, "libg.so needs libf.so, which is nowhere that"},
		{dir + "/libg.so", static, "static is static and loads no libraries"},
		{dir + "/gone.so", program, "program needs " + dir + "/gone.so, which is nowhere that"},
	} {
		if _, err := (Options{}).Library(c.library, c.program); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.library, err, c.want)
		}
	}
}

func TestNativeFindsTheProgramOfAPackage(t *testing.T) {
	dir := folder(t)
	script := write(t, dir+"/pkg/bin/tool.js", "#!/bin/sh\n", 0o755)
	write(t, dir+"/pkg-linux-other/tool", "\x7fELF for another processor", 0o755)
	patterns := []string{"../../pkg-none/tool", "../../pkg-linux-*/tool"}
	if got, err := Native(script, patterns); got != "" || err != nil {
		t.Errorf("nothing to find: got %q, %v", got, err)
	}
	tool := filepath.Join(dir, "pkg-linux-this", "tool")
	if err := os.Mkdir(filepath.Dir(tool), 0o755); err != nil {
		t.Fatal(err)
	}
	compile(t, emptyMain, "-o", tool)
	if got, err := Native(script, patterns); got != tool || err != nil {
		t.Errorf("got %q, %v, want %s", got, err, tool)
	}
	same := filepath.Join(dir, "pkg-linux-twin", "tool")
	if err := os.Mkdir(filepath.Dir(same), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(tool, same); err != nil {
		t.Fatal(err)
	}
	if got, err := Native(script, patterns); got != tool || err != nil {
		t.Errorf("one file under two names: got %q, %v, want %s", got, err, tool)
	}
	if err := os.Remove(same); err != nil {
		t.Fatal(err)
	}
	compile(t, emptyMain, "-static", "-o", same)
	if got, err := Native(script, patterns); err == nil || !strings.Contains(err.Error(), "name the one that is meant") {
		t.Errorf("two programs: got %q, %v", got, err)
	}
}
