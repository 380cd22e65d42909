package agent

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/sharness/sharness/bpf"
)

// hook attaches to the functions through which security modules answer. A kernel may not allow that: then the causes of
// denials stay inferred, and nothing else changes. The error says why not.
func (t *Tracer) hook(o Options, types *btf.Cache) error {
	spec, err := bpf.LoadHooks()
	if err != nil {
		return fmt.Errorf("read hooks: %w", err)
	}
	if err := spec.Variables["slots"].Set(uint32(len(o.Cgroups))); err != nil {
		return err
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types,
		MapReplacements: map[string]*ebpf.Map{"cgroups": t.objects.Cgroups, "verdicts": t.objects.Verdicts}})
	if err != nil {
		return fmt.Errorf("load hooks: %w", err)
	}
	defer loaded.Close() // the links hold the programs
	for name, program := range loaded.Programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, err)
		}
		t.links = append(t.links, l)
		t.hooks++
	}
	return nil
}

// Hooks is how many functions are watched that say who refused, and why no more are.
func (t *Tracer) Hooks() (n int, reason error) { return t.hooks, t.unhooked }
