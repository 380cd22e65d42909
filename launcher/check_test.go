package launcher

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// request is a sealed memfd as bashd makes it.
func request(t testing.TB) *os.File {
	t.Helper()
	f, err := wire.SealCommand(wire.Command{Path: "/bin/sh", Argv: []string{"sh"}, Cwd: "/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func pipeOf(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func TestOnlyWhatBashdCanMeanIsTaken(t *testing.T) {
	good := request(t)
	fd, err := unix.MemfdCreate("loose", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	loose := os.NewFile(uintptr(fd), "loose")
	defer loose.Close()
	if _, err := loose.WriteString("SHC1"); err != nil {
		t.Fatal(err)
	}
	r, w := pipeOf(t)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	folder, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	pipes := []*os.File{good, r, w, w}
	for name, c := range map[string]struct {
		rec   wire.Record
		files []*os.File
		want  string // "": it is taken
	}{
		"start":                  {wire.Record{Type: wire.RecStart}, pipes, ""},
		"start of a job":         {wire.Record{Type: wire.RecStart, A: wire.FlagJob}, pipes, ""},
		"start on a terminal":    {wire.Record{Type: wire.RecStart, A: wire.FlagTerminal, B: 24 | 80<<16}, pipes[:1], ""},
		"signal":                 {wire.Record{Type: wire.RecSignal, A: 15}, nil, ""},
		"kill":                   {wire.Record{Type: wire.RecKill, A: uint64(wire.ReasonClientGone)}, nil, ""},
		"done":                   {wire.Record{Type: wire.RecDone}, nil, ""},
		"unknown flag":           {wire.Record{Type: wire.RecStart, A: 8}, pipes, "flags 0x8"},
		"terminal and job":       {wire.Record{Type: wire.RecStart, A: wire.FlagTerminal | wire.FlagJob}, pipes[:1], "flags"},
		"size without terminal":  {wire.Record{Type: wire.RecStart, B: 1}, pipes, "size"},
		"size of 40 bits":        {wire.Record{Type: wire.RecStart, A: wire.FlagTerminal, B: 1 << 39}, pipes[:1], "size"},
		"a third number":         {wire.Record{Type: wire.RecStart, C: 1}, pipes, "flags"},
		"two descriptors":        {wire.Record{Type: wire.RecStart}, pipes[:2], "2 descriptors"},
		"pipes and terminal":     {wire.Record{Type: wire.RecStart, A: wire.FlagTerminal}, pipes, "4 descriptors"},
		"loose request":          {wire.Record{Type: wire.RecStart}, []*os.File{loose, r, w, w}, "not sealed"},
		"request is a pipe":      {wire.Record{Type: wire.RecStart}, []*os.File{r, r, w, w}, "not sealed"},
		"a device as stdin":      {wire.Record{Type: wire.RecStart}, []*os.File{good, null, w, w}, "descriptor 0 is no pipe"},
		"a folder as stdout":     {wire.Record{Type: wire.RecStart}, []*os.File{good, r, folder, w}, "descriptor 1 is no pipe"},
		"a memfd as stderr":      {wire.Record{Type: wire.RecStart}, []*os.File{good, r, w, good}, "descriptor 2 is no pipe"},
		"wrong end as stdin":     {wire.Record{Type: wire.RecStart}, []*os.File{good, w, w, w}, "descriptor 0 is the wrong end"},
		"wrong end as stdout":    {wire.Record{Type: wire.RecStart}, []*os.File{good, r, r, w}, "descriptor 1 is the wrong end"},
		"signal 0":               {wire.Record{Type: wire.RecSignal}, nil, "signal 0"},
		"SIGKILL":                {wire.Record{Type: wire.RecSignal, A: 9}, nil, "signal 9"},
		"SIGSTOP":                {wire.Record{Type: wire.RecSignal, A: 19}, nil, "signal 19"},
		"signal of 64 bits":      {wire.Record{Type: wire.RecSignal, A: 1<<32 + 15}, nil, "signal 4294967311"},
		"kill without a reason":  {wire.Record{Type: wire.RecKill}, nil, "reason 0"},
		"kill for time":          {wire.Record{Type: wire.RecKill, A: uint64(wire.ReasonTimeout)}, nil, "reason 6"},
		"done with a number":     {wire.Record{Type: wire.RecDone, A: 1}, nil, "record 19 with numbers"},
		"taken with a number":    {wire.Record{Type: wire.RecTaken, A: 1}, nil, "record 20 with numbers"},
		"record of our own":      {wire.Record{Type: wire.RecStarted}, nil, "not bashd's to send"},
		"record of no one's own": {wire.Record{Type: 77}, nil, "not bashd's to send"},
	} {
		err := check(c.rec, c.files)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// openFiles counts the descriptors of this process.
func openFiles(t testing.TB) int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// FuzzHandle plays a bashd that says anything: 5 bytes a record (type, connection, and a byte for each number), each with
// descriptors of its choice. No slot is free, so that nothing is started.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{16, 1, 0, 0, 0, 18, 1, 4, 0, 0, 19, 1, 0, 0, 0}, uint32(0))
	f.Add([]byte{16, 2, 2, 24, 0, 17, 2, 15, 0, 0, 17, 2, 9, 0, 0}, uint32(0x11))
	f.Add([]byte{16, 3, 4, 0, 0, 16, 3, 4, 0, 0, 1, 3, 0, 0, 0}, uint32(0x2222))
	f.Fuzz(func(t *testing.T, data []byte, kinds uint32) {
		before := openFiles(t)
		send, events, err := sink.Pair()
		if err != nil {
			t.Fatal(err)
		}
		s := &Session{Manifest: (&manifest.Manifest{}).WithDefaults()}
		sv := &server{s: s, events: sink.NewSender(send, "test"), open: map[uint64]*wire.RecordConn{}, sent: map[uint64]int{}, running: map[uint64]*runningCommand{}, hinted: map[wire.Hint]time.Time{}}
		sv.changed.L = &sv.mu
		sv.replaced, sv.boxes = &replacements{}, &sandboxes{sv: sv, closed: true} // no command gets a sandbox
		a, b, err := socketpair(unix.SOCK_SEQPACKET)
		if err != nil {
			t.Fatal(err)
		}
		rc, err := wire.NewRecordConn(a, wire.Patience)
		if err != nil {
			t.Fatal(err)
		}
		for id := range uint64(4) {
			sv.open[id] = rc
		}
		for i := 0; i+5 <= len(data) && i < 5*64; i += 5 {
			rec := wire.Record{Type: wire.RecordType(data[i]), ID: uint64(data[i+1]), A: uint64(data[i+2]), B: uint64(data[i+3]), C: uint64(data[i+4])}
			open := sv.open[rec.ID] != nil
			err := sv.handle(rc, rec, descriptors(t, data[i], kinds>>(i%29)))
			if err == nil && !open {
				t.Fatalf("%+v: taken for a connection that bashd does not hold", rec)
			}
			if err == nil && rec.Type < 16 {
				t.Fatalf("%+v: taken from bashd", rec)
			}
		}
		sv.busy.Wait()
		if len(sv.running) > 0 {
			t.Fatalf("%d commands run without a sandbox", len(sv.running))
		}
		rc.Close()
		for _, f := range []*os.File{b, send, events} {
			f.Close()
		}
		if after := openFiles(t); after > before {
			t.Fatalf("%d descriptors, %d before", after, before)
		}
	})
}

// descriptors are what comes beside a record, by the bits of kinds: a sealed request, ends of pipes, a device, a folder.
func descriptors(t testing.TB, typ byte, kinds uint32) (fds []int) {
	if typ != byte(wire.RecStart) {
		return nil // the codec lets none through
	}
	mem, err := wire.SealCommand(wire.Command{Path: "/bin/sh", Argv: []string{"sh"}, Cwd: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	choice := [4][]*os.File{{mem, r, null, w}, {r, w, null, mem}, {w, r, null, mem}, {w, null, r, mem}}
	for i := range 4 - int(binary.LittleEndian.AppendUint32(nil, kinds)[3]&3) {
		fd, err := unix.FcntlInt(choice[i][kinds>>(4*i)&3].Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}
