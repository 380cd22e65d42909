package confine

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Landlock is one layer (landlock(7)). ABI 0 means no layer.
type Landlock struct {
	ABI     int        `json:"abi"`
	FS      bool       `json:"fs"`     // handle every file right of the ABI
	Refer   bool       `json:"refer"`  // without FS: handle REFER alone. A layer that does not handle it denies it (landlock(7))
	Net     bool       `json:"net"`    // handle every network right of the ABI; UDP too from ABI 10, and no rule allows that
	Scoped  bool       `json:"scoped"` // keep signals and abstract sockets inside
	Paths   []PathRule `json:"paths,omitempty"`
	TCP     []uint16   `json:"tcp,omitempty"`      // ports that connect may reach
	BindTCP bool       `json:"bind_tcp,omitempty"` // leave bind free (inside an own network namespace)
}

// PathRule grants access rights (LANDLOCK_ACCESS_FS_*) beneath a path. Rights that the ABI does not know are not
// restricted by it, and are left out of the rule; so are the rights of folders when the path is none.
type PathRule struct {
	Path   string `json:"path"`
	Access uint64 `json:"access"`
}

// Sets of rights for PathRule.
const (
	AccessExecute = ll.AccessFSExecute
	AccessRead    = ll.AccessFSReadFile | ll.AccessFSReadDir
	AccessWrite   = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSMakeReg | ll.AccessFSMakeDir |
		ll.AccessFSMakeSym | ll.AccessFSRemoveFile | ll.AccessFSRemoveDir | ll.AccessFSRefer
	AccessSpecial = ll.AccessFSMakeSock | ll.AccessFSMakeFifo // never in a folder that the host's tools look into
	AccessIoctl   = ll.AccessFSIoctlDev

	accessOfFiles = ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile | ll.AccessFSTruncate |
		ll.AccessFSIoctlDev | ll.AccessFSResolveUnix
)

// What the ABIs can do, by number.
var abis = []landlock.Config{1: landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7,
	landlock.V8, landlock.V9, landlock.V10}

// MaxLandlockABI is the newest ABI that Restrict knows.
var MaxLandlockABI = len(abis) - 1

// Restrict puts every thread into a new domain with exactly the rights of the ABI: a kernel that has less is an error,
// and what a newer one could handle besides is left alone. It sets no_new_privs. A path that does not exist is an
// error. At most 16 layers can be stacked (E2BIG).
func (l Landlock) Restrict() error {
	if l.ABI == 0 {
		return nil
	}
	config, err := l.config()
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	rules, err := l.rules(config)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	// Before the library, which would do it too: in a cgo build this one fails, and the library's way of reaching
	// all threads there would add a rule for /proc that nobody asked for.
	if err := NoNewPrivs(); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if err := config.Restrict(rules...); err != nil {
		return fmt.Errorf("landlock: restrict at ABI %d: %w", l.ABI, err)
	}
	return nil
}

func (l Landlock) config() (landlock.Config, error) {
	var config landlock.Config
	if l.ABI < 1 || l.ABI > MaxLandlockABI {
		return config, fmt.Errorf("ABI %d is not among those known, 1 to %d", l.ABI, MaxLandlockABI)
	}
	// Not left to the library, which would build a ruleset first: a kernel that is too old must not get a part of it.
	have, err := LandlockABI()
	if err != nil {
		return config, err
	}
	if have < l.ABI {
		return config, fmt.Errorf("ABI %d wanted, the kernel has %d", l.ABI, have)
	}
	full := abis[l.ABI]
	switch {
	case l.FS:
		config.HandledAccessFS = full.HandledAccessFS
	case l.Refer:
		config.HandledAccessFS = full.HandledAccessFS & ll.AccessFSRefer
	}
	if l.Net {
		if full.HandledAccessNet == 0 {
			return config, fmt.Errorf("ABI %d has no network rights", l.ABI)
		}
		config.HandledAccessNet = full.HandledAccessNet
		if l.BindTCP {
			config.HandledAccessNet &^= ll.AccessNetBindTCP | ll.AccessNetBindUDP
		}
	}
	if l.Scoped {
		if full.Scoped == 0 {
			return config, fmt.Errorf("ABI %d has no scopes", l.ABI)
		}
		config.Scoped = full.Scoped
	}
	if config.HandledAccessFS == 0 && !l.Net && !l.Scoped {
		return config, errors.New("a layer that restricts nothing")
	}
	return config, nil
}

func (l Landlock) rules(config landlock.Config) ([]landlock.Rule, error) {
	if len(l.Paths) > 0 && config.HandledAccessFS == 0 {
		return nil, errors.New("path rules in a layer that handles no file right")
	}
	if len(l.TCP) > 0 && !l.Net {
		return nil, errors.New("port rules in a layer that handles no network right")
	}
	var rules []landlock.Rule
	for _, p := range l.Paths {
		access, err := p.access(config)
		if err != nil {
			return nil, fmt.Errorf("rule for %s: %w", p.Path, err)
		}
		rules = append(rules, landlock.PathAccess(access, p.Path))
	}
	for _, port := range l.TCP {
		rules = append(rules, landlock.ConnectTCP(port))
	}
	return rules, nil
}

// access is what of the rule applies to the path: the kernel refuses the rights of a folder on a file (EINVAL).
func (p PathRule) access(config landlock.Config) (landlock.AccessFSSet, error) {
	info, err := os.Stat(p.Path)
	if err != nil {
		return 0, err
	}
	access := landlock.AccessFSSet(p.Access) & config.HandledAccessFS
	if !info.IsDir() {
		access &= accessOfFiles
	}
	if access == 0 {
		return 0, fmt.Errorf("no right of %#x applies", p.Access)
	}
	return access, nil
}

// LandlockABI asks the kernel for its ABI: ENOSYS when Landlock is not built in, EOPNOTSUPP when it is off.
func LandlockABI() (int, error) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0, fmt.Errorf("landlock_create_ruleset: ask for the ABI: %w", err)
	}
	return abi, nil
}

// LandlockErrata asks for the bitmask of errata that the kernel has fixed (bit N-1 is erratum N). EINVAL: the kernel
// is older than the question, and nothing can be said.
func LandlockErrata() (int, error) {
	r, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
	if errno != 0 {
		return 0, fmt.Errorf("landlock_create_ruleset: ask for errata: %w", errno)
	}
	return int(r), nil
}
