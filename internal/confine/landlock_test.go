package confine

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// landlockInput is a layer and what to try in it: "read PATH", "write PATH", "mkdir PATH", "connect PORT", "bind",
// "signal PID".
type landlockInput struct {
	Layer Landlock
	Tries []string
}

type landlockReply struct {
	Err   string
	Tries map[string][]string
}

func landlockChild(input json.RawMessage) (any, error) {
	in, err := decode[landlockInput](input)
	if err != nil {
		return nil, err
	}
	w := startWitnesses(2)
	reply := landlockReply{Err: text(in.Layer.Restrict()), Tries: map[string][]string{}}
	for _, try := range in.Tries {
		reply.Tries[try] = w.each(func() string { return text(attempt(try)) })
	}
	return reply, nil
}

func attempt(try string) error {
	verb, object, _ := strings.Cut(try, " ")
	var number int
	fmt.Sscan(object, &number)
	switch verb {
	case "read":
		return open(object)
	case "write":
		fd, err := unix.Open(object, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	case "mkdir":
		if err := unix.Mkdir(object, 0o755); err != nil {
			return err
		}
		return unix.Rmdir(object)
	case "connect", "bind":
		return attemptTCP(verb, number)
	case "signal":
		return unix.Kill(number, 0)
	}
	return fmt.Errorf("no such attempt: %s", try)
}

func attemptTCP(verb string, port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	addr := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	if verb == "bind" {
		return unix.Bind(fd, addr)
	}
	return unix.Connect(fd, addr)
}

func runLandlock(t *testing.T, layer Landlock, tries ...string) landlockReply {
	t.Helper()
	var got landlockReply
	kerneltest.Child{Name: "landlock", Input: landlockInput{layer, tries}, Reply: &got}.Run(t)
	return got
}

func TestLandlockBindsEveryThread(t *testing.T) {
	kerneltest.RequireLandlock(t, 6)
	dir := t.TempDir()
	file, other := writeFile(t, filepath.Join(dir, "file")), writeFile(t, filepath.Join(dir, "other"))
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	port, otherPort := listen(t), listen(t)
	layer := Landlock{ABI: 6, FS: true, Net: true, Scoped: true, TCP: []uint16{uint16(port)}, Paths: []PathRule{
		{Path: file, Access: AccessRead | AccessWrite}, // rights of folders too: they are left out
		{Path: sub, Access: AccessRead | AccessWrite},
	}}
	denied, done := unix.EACCES.Error(), ""
	want := map[string]string{
		"read " + file: done, "write " + file: done, "read " + other: denied, "write " + other: denied,
		"read /etc/passwd": denied, "mkdir " + sub + "/x": done, "mkdir " + dir + "/x": denied,
		fmt.Sprint("connect ", port): done, fmt.Sprint("connect ", otherPort): denied, "bind 0": denied,
		fmt.Sprint("signal ", os.Getpid()): unix.EPERM.Error(),
	}
	var tries []string
	for try := range want {
		tries = append(tries, try)
	}
	got := runLandlock(t, layer, tries...)
	if got.Err != "" {
		t.Fatalf("restrict: %s", got.Err)
	}
	for try, w := range want {
		wantAll(t, try, w, got.Tries[try])
	}
}

func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func TestLandlockLeavesBindFreeOnRequest(t *testing.T) {
	kerneltest.RequireLandlock(t, 4)
	port := listen(t)
	connect := fmt.Sprint("connect ", port)
	got := runLandlock(t, Landlock{ABI: 4, Net: true, BindTCP: true}, "bind 0", connect)
	wantAll(t, "bind", "", got.Tries["bind 0"])
	wantAll(t, "connect", unix.EACCES.Error(), got.Tries[connect])
}

// A layer that cannot be had whole must not be had in part, and must say so.
func TestLandlockRefusesWhatItCannotEnforce(t *testing.T) {
	kerneltest.RequireLandlock(t, 1)
	abi, err := LandlockABI()
	if err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, filepath.Join(t.TempDir(), "file"))
	for name, c := range map[string]struct {
		layer Landlock
		want  string
	}{
		"newer than the kernel": {Landlock{ABI: abi + 1, FS: true}, "ABI"},
		"newer than known":      {Landlock{ABI: MaxLandlockABI + 1, FS: true}, "not among those known"},
		"negative":              {Landlock{ABI: -1, FS: true}, "not among those known"},
		"no net in this ABI":    {Landlock{ABI: 1, FS: true, Net: true}, "has no network rights"},
		"no scopes in this ABI": {Landlock{ABI: 1, FS: true, Scoped: true}, "has no scopes"},
		"nothing":               {Landlock{ABI: 1}, "restricts nothing"},
		"missing path":          {Landlock{ABI: 1, FS: true, Paths: []PathRule{{"/no/such/path", AccessRead}}}, "no such file"},
		"no right of a file":    {Landlock{ABI: 1, FS: true, Paths: []PathRule{{file, 1 << 3}}}, "no right"},
		"paths without FS":      {Landlock{ABI: 4, Net: true, Paths: []PathRule{{file, AccessRead}}}, "path rules"},
		"ports without Net":     {Landlock{ABI: 1, FS: true, TCP: []uint16{443}}, "port rules"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "paths without FS" {
				kerneltest.RequireLandlock(t, c.layer.ABI)
			}
			got := runLandlock(t, c.layer, "read "+file)
			if !strings.Contains(got.Err, c.want) {
				t.Errorf("restrict: want an error with %q, got %q", c.want, got.Err)
			}
			wantAll(t, "read after the refusal", "", got.Tries["read "+file])
		})
	}
}

func TestLandlockZeroABIIsNoLayer(t *testing.T) {
	if err := (Landlock{FS: true}).Restrict(); err != nil {
		t.Errorf("want no layer and no error, got %v", err)
	}
}

func TestLandlockErrataAreKnownWhereTheInterfaceIs(t *testing.T) {
	kerneltest.RequireLandlock(t, 7)
	errata, err := LandlockErrata()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("errata fixed: %#x", errata)
}
