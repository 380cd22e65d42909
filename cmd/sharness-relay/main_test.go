package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/relay"
	"github.com/sharness/sharness/manifest"
)

// testUID is outside every range that a host or sharness itself hands out.
const testUID = 1_999_999_001

// build makes the program as it is shipped: with cgo the runtime could not confine all threads.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "sharness-relay")
	cmd := exec.Command("go", "build", "-o", bin, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// The relay runs as another user: the folders on the way must let it pass.
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

// TestConfinedRelayServes runs the program as the supervisor would and looks at what is left of its privileges.
func TestConfinedRelayServes(t *testing.T) {
	upstream := listen(t)
	go func() {
		for {
			c, err := upstream.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(upstream.Addr().String())

	abi, err := confine.LandlockABI()
	if err != nil {
		t.Fatal(err)
	}
	filters, err := filter.Compile(filter.Options{Kind: filter.Helper, Files: true, Network: true})
	if err != nil {
		t.Fatal(err)
	}
	config := relay.Config{Session: "s", LandlockABI: abi, Seccomp: filters, Endpoints: []relay.Endpoint{
		{Name: "127.0.0.1", Port: 1, TLS: manifest.TLSNone, Upstream: upstream.Addr().String()},
		// Only /etc/hosts makes an address of this name: the answer shows that the resolver can read it.
		{Name: "kite.example.test", Port: 2, TLS: manifest.TLSNone, Upstream: "localhost:" + port},
	}}
	listeners := []*net.TCPListener{listen(t), listen(t)}
	cmd, events, stderr := start(t, build(t), config, listeners)

	c, err := net.Dial("tcp", listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(c, "hello")
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatalf("through the relay: %v\n%s", err, stderr)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status of the relay lacks %q", want)
		}
	}

	local, err := net.Dial("tcp", listeners[1].Addr().String())
	if err == nil {
		local.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = io.ReadAll(local)
		local.Close()
	}
	if err == nil {
		t.Error("a name that resolves to this host was followed")
	}
	e := next(t, events)
	if e.Door != "net-host" || !strings.Contains(e.Detail, "127.0.0.1") {
		t.Errorf("event %+v, want net-host with the address from /etc/hosts", e)
	}

	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, stderr)
	}
}

func TestRelayWithoutConfinementRefuses(t *testing.T) {
	cmd, _, stderr := start(t, build(t), relay.Config{}, nil)
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 125 || !strings.Contains(stderr.String(), "not confined") {
		t.Errorf("got exit %d, %q; want 125 and the reason", cmd.ProcessState.ExitCode(), stderr)
	}
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func start(t *testing.T, bin string, config relay.Config, listeners []*net.TCPListener) (*exec.Cmd, *os.File, *bytes.Buffer) {
	t.Helper()
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("config", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	memfd := os.NewFile(uintptr(fd), "config")
	defer memfd.Close()
	if _, err := memfd.Write(data); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	sink, src := os.NewFile(uintptr(pair[0]), "sink"), os.NewFile(uintptr(pair[1]), "events")
	t.Cleanup(func() { sink.Close() })
	defer src.Close()
	stderr := &bytes.Buffer{}
	cmd := exec.Command(bin)
	cmd.Stderr = stderr
	// Descriptor 3 is not among the relay's; it must close what it did not ask for.
	cmd.ExtraFiles = []*os.File{memfd, src, memfd}
	for _, l := range listeners {
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, sink, stderr
}

func next(t *testing.T, sink *os.File) event.Event {
	t.Helper()
	unix.SetsockoptTimeval(int(sink.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	buf := make([]byte, event.MaxBytes)
	n, err := sink.Read(buf)
	if err != nil {
		t.Fatalf("no event: %v", err)
	}
	e, err := event.Decode(buf[:n])
	if err != nil {
		t.Fatalf("event %s: %v", buf[:n], err)
	}
	return *e
}
