package agent

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bpf"
)

// MaxCgroups is how many cgroups one Tracer follows.
const MaxCgroups = 8

// Options say what is traced.
type Options struct {
	Cgroups []string `json:"cgroups"` // folders in the cgroup2 hierarchy; what is below counts too. A record's slot is the index here
	Maps    bool     `json:"maps"`    // executable mappings of files too, for learning
	Hooks   bool     `json:"hooks"`   // ask the kernel who refused, where it lets that be asked; detaching takes longer then
	Tried   bool     `json:"tried"`   // what was not found too, and signals that were sent, each once, for learning
	Ring    uint32   `json:"ring"`    // bytes for records of what runs that wait to be read, a power of two; 0: DefaultRing
	Argv    bool     `json:"argv"`    // the arguments of refused execs; off, because tokens stand there
	Files   bool     `json:"files"`   // refusals of calls that take a path; off, because programs look for files they may not read
}

// Bounds of Options.Ring. Of 256 KiB or less the reader is not woken by what waits: it comes by the clock alone.
const (
	DefaultRing = 1 << 20
	MinRing     = 1 << 12
	MaxRing     = 1 << 28
)

// Tracer is the attached programs. Its methods are for one goroutine.
type Tracer struct {
	objects  bpf.TraceObjects
	links    []link.Link
	rings    *rings
	hooks    int         // attached, of those that say who refused
	unhooked error       // why no more are
	boot     time.Time   // when CLOCK_BOOTTIME was zero
	ends     [64]procKey // of processes, the latest
	next     int
}

// Load loads and attaches; when it returns, everything that happens below the cgroups is seen. It needs CAP_BPF and
// CAP_PERFMON, or root, and a kernel of at least 5.17 with BTF. The caller calls Close, or ends.
func Load(o Options) (*Tracer, error) {
	preempts, err := preemptible()
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return load(o, preempts)
}

// preemptible says whether the kernel may preempt programs at tracepoints: from 7.0 on, see bpf/preempt.h. It is an error
// if it does and has no functions that forbid it: two programs write into the same memory of a processor.
func preemptible() (bool, error) {
	version, err := features.LinuxVersionCode()
	if err != nil {
		return false, fmt.Errorf("version of the kernel: %w", err)
	}
	if version < 7<<16 {
		return false, nil
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return true, explain(err)
	}
	for _, name := range []string{"bpf_preempt_disable", "bpf_preempt_enable", "bpf_local_irq_save", "bpf_local_irq_restore"} {
		if _, err := kernel.AnyTypesByName(name); err != nil {
			return true, fmt.Errorf("the kernel preempts tracing programs and lets none forbid it (%s: %w): run another kernel", name, err)
		}
	}
	return true, nil
}

// load makes a tracer that is told whether the kernel preempts its programs.
func load(o Options, preempts bool) (*Tracer, error) {
	t := &Tracer{}
	if err := t.attach(o, preempts); err != nil {
		return nil, fmt.Errorf("trace: %w", errors.Join(explain(err), t.Close()))
	}
	return t, nil
}

func (t *Tracer) attach(o Options, preempts bool) error {
	if len(o.Cgroups) == 0 || len(o.Cgroups) > MaxCgroups {
		return fmt.Errorf("%d cgroups to follow, want 1 to %d", len(o.Cgroups), MaxCgroups)
	}
	spec, err := bpf.LoadTrace()
	if err != nil {
		return fmt.Errorf("read programs: %w", err)
	}
	if err := configure(spec, o, preempts); err != nil {
		return err
	}
	types := btf.NewCache()
	if err := spec.LoadAndAssign(&t.objects, &ebpf.CollectionOptions{Cache: types}); err != nil {
		return fmt.Errorf("load programs: %w", err)
	}
	if err := follow(t.objects.Cgroups, o.Cgroups); err != nil {
		return err
	}
	if t.boot, err = bootTime(); err != nil {
		return err
	}
	if t.rings, err = openRings(&t.objects.TraceMaps); err != nil {
		return err
	}
	programs := []*ebpf.Program{t.objects.ProcessFork, t.objects.ProcessExec, t.objects.ProcessExit,
		t.objects.SignalGenerate, t.objects.SysExit}
	if preempts {
		programs = append(programs, t.objects.SysExitAgain) // the kernel runs them in this order
	}
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("attach %s: %w", p, err)
		}
		t.links = append(t.links, l)
	}
	if o.Hooks {
		t.unhooked = t.hook(o, types)
	}
	return nil
}

// filesRing is the size of the ring for refused calls on files where those are reported: they come faster than others.
const filesRing = 1 << 20

func configure(spec *ebpf.CollectionSpec, o Options, preempts bool) error {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	seed := [2]uint64{binary.LittleEndian.Uint64(random[:]), binary.LittleEndian.Uint64(random[8:])}
	if o.Ring != 0 {
		if o.Ring < MinRing || o.Ring > MaxRing || o.Ring&(o.Ring-1) != 0 {
			return fmt.Errorf("a ring of %d bytes: want a power of two from %d to %d", o.Ring, MinRing, MaxRing)
		}
		spec.Maps["exec_ring"].MaxEntries = o.Ring
	}
	if o.Files {
		spec.Maps["denial_file_ring"].MaxEntries = filesRing
	}
	return errors.Join(
		spec.Variables["slots"].Set(uint32(len(o.Cgroups))),
		spec.Variables["want_maps"].Set(flag(o.Maps)),
		spec.Variables["want_tried"].Set(flag(o.Tried)),
		spec.Variables["preemptible"].Set(flag(preempts)),
		spec.Variables["seed"].Set(seed),
		spec.Variables["calls"].Set(callTable(o)),
	)
}

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

func follow(array *ebpf.Map, dirs []string) error {
	for i, dir := range dirs {
		fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open cgroup %s: %w", dir, err)
		}
		err = array.Put(uint32(i), uint32(fd))
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("follow cgroup %s: %w", dir, err)
		}
	}
	return nil
}

func bootTime() (time.Time, error) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return time.Time{}, fmt.Errorf("clock_gettime: %w", err)
	}
	return time.Now().Add(-time.Duration(since.Nano())), nil
}

// explain puts the reason a person can act on before an errno that says little: the library hints at a memory limit
// that has not counted since 5.11.
func explain(err error) error {
	if errors.Is(err, btf.ErrNotFound) || errors.Is(err, btf.ErrNotSupported) {
		return fmt.Errorf("the kernel lacks type information (BTF) that is needed: %w", err)
	}
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("needs CAP_BPF and CAP_PERFMON, and a kernel whose lockdown allows it: %w", err)
	}
	return err
}

// Close detaches. It takes about a millisecond; each hook waits for a grace period of the kernel besides.
func (t *Tracer) Close() error {
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	t.links = nil
	if t.rings != nil {
		errs = append(errs, t.rings.close())
		t.rings = nil
	}
	if t.objects.SysExit != nil {
		errs = append(errs, t.objects.Close())
		t.objects = bpf.TraceObjects{}
	}
	return errors.Join(errs...)
}
