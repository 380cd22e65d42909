package confine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// denyPPID is a filter written by hand: getppid fails with EXDEV, which it never does by itself.
func denyPPID() []byte {
	var b bytes.Buffer
	binary.Write(&b, binary.NativeEndian, []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETPPID, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EXDEV)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	})
	return b.Bytes()
}

func getppid() error { return raw(unix.SYS_GETPPID, 0, 0, 0) }

func seccompChild(json.RawMessage) (any, error) {
	w := startWitnesses(3)
	if err := NoNewPrivs(); err != nil {
		return nil, err
	}
	if err := LoadSeccomp(denyPPID()); err != nil {
		return nil, err
	}
	return w.each(func() string { return text(getppid()) }), nil
}

func TestLoadSeccompBindsEveryThread(t *testing.T) {
	var got []string
	kerneltest.Child{Name: "seccomp", Reply: &got}.Run(t)
	wantAll(t, "getppid", unix.EXDEV.Error(), got)
}

func TestLoadSeccompRefusesWhatIsNoFilter(t *testing.T) {
	for name, prog := range map[string][]byte{
		"empty": nil, "torn": make([]byte, 12), "too long": make([]byte, 8*(maxInsns+1)), "invalid": make([]byte, 8),
	} {
		if err := LoadSeccomp(prog); err == nil || !strings.HasPrefix(err.Error(), "seccomp: load filter: ") {
			t.Errorf("%s: want an error, got %v", name, err)
		}
	}
}
