package bashserver

import (
	"os"

	"github.com/sharness/sharness/internal/confine"
)

// Descriptors that the supervisor starts bashd with.
const (
	ControlFD = 3 // seqpacket socket: wire.Record
	EventsFD  = 4 // datagram socket: one event.Event a datagram
	ConfigFD  = 5 // memfd: JSON of Config
)

// Run is bashd: it reads its config, gives up every privilege, and serves until the supervisor ends the session.
func Run() error {
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
	return Serve(os.NewFile(ControlFD, "control"), os.NewFile(EventsFD, "events"), cfg)
}

// confineSelf leaves no file and no port: all that bashd works on is handed to it.
func confineSelf(cfg Config) error {
	return confine.Self(confine.Drop{
		Keep:     []int{ControlFD, EventsFD},
		Landlock: confine.Landlock{ABI: cfg.LandlockABI, FS: true, Net: true, Scoped: true},
		Seccomp:  [][]byte{cfg.Seccomp},
	})
}
