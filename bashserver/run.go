package bashserver

import (
	"os"
	"runtime/debug"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/lean"
)

// Descriptors that the supervisor starts bashd with.
const (
	ControlFD = 3 // seqpacket socket: wire.Record
	EventsFD  = 4 // datagram socket: one event.Event a datagram
	ConfigFD  = 5 // memfd: JSON of Config
)

// heapGoal is where the collector begins to work harder than usual. Each of 64 commands may have 2 MiB captured, and
// what they outgrew on the way is as much again; the supervisor bounds us with the other helpers (helperLimits).
const heapGoal = 192 << 20

// Run is bashd: it reads its config, gives up every privilege, and serves until the supervisor ends the session.
func Run() error {
	debug.SetMemoryLimit(heapGoal)
	program := lean.Mapped()
	f := os.NewFile(ConfigFD, "config")
	cfg, err := ReadConfig(f)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := confineSelf(cfg); err != nil {
		return err
	}
	cfg.lull = lean.NewLull(program)
	return Serve(os.NewFile(ControlFD, "control"), os.NewFile(EventsFD, "events"), cfg)
}

// confineSelf leaves no file and no port: all that bashd works on is handed to it. Landlock restricts TCP since ABI 4 and
// has scopes since ABI 6; below, the filter has neither connect nor kill.
func confineSelf(cfg Config) error {
	return confine.Self(confine.Drop{
		Keep:     []int{ControlFD, EventsFD},
		Landlock: confine.Landlock{ABI: cfg.LandlockABI, FS: true, Net: cfg.LandlockABI >= 4, Scoped: cfg.LandlockABI >= 6},
		Seccomp:  [][]byte{cfg.Seccomp},
	})
}
