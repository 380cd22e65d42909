package pin

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sharness/sharness/manifest"
)

// musl is not on every host, so its loader is stood in for by a static program of that name: only where it looks is
// tested, by what ldso/dynlink.c says. The program is linked with glibc, whose libc.so.6 musl would answer itself.
func TestMuslInheritsRunpathAndIsItsOwnLibc(t *testing.T) {
	dir := folder(t)
	loader := filepath.Join(dir, "ld-musl-test.so.1")
	compile(t, emptyMain, "-static", "-o", loader)
	for _, d := range []string{"a", "own"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	compile(t, libF, "-shared", "-o", dir+"/a/libf.so")
	compile(t, "int f(void); int g(void){return f();}", "-shared", "-o", dir+"/own/libg.so", "-L"+dir+"/a", "-lf")
	program := filepath.Join(dir, "program")
	// With glibc the DT_RUNPATH of the program would not count for what libg needs.
	compile(t, "int g(void); int main(void){return g();}", "-o", program, "-L"+dir+"/own", "-lg",
		"-Wl,--enable-new-dtags,-rpath,$ORIGIN/own:$ORIGIN/a", "-Wl,--allow-shlib-undefined", "-Wl,--dynamic-linker="+loader)
	c, err := Resolve(program, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{dir + "/a/libf.so", dir + "/own/libg.so"}; !slices.Equal(libraries(c), want) {
		t.Errorf("got %v, want %v", libraries(c), want)
	}
	if !slices.ContainsFunc(c.Exec, func(e manifest.Exec) bool { return e.Path == loader && e.Role == manifest.RoleLoader }) {
		t.Errorf("no loader in %+v", c.Exec)
	}
}
