package manifest

import (
	"slices"
	"time"
)

// WithDefaults returns a copy in which every part that was not written has the value that enforce uses. m is not
// changed, and the copy shares no slice or map with it that WithDefaults fills in.
func (m *Manifest) WithDefaults() *Manifest {
	d := *m
	def(&d.Workspace.Path, ".")
	def(&d.Workspace.Orchestrator, AccessRead)
	def(&d.Workspace.Protect, ProtectDefault)
	d.Connect = slices.Clone(m.Connect)
	for i := range d.Connect {
		tls := TLSSNI
		if Loopback(d.Connect[i].Name) {
			tls = TLSNone
		}
		def(&d.Connect[i].TLS, tls)
	}
	def(&d.Shell, "/bin/sh")
	def(&d.Limits.Pids, 512)
	def(&d.Limits.Memory, 4*GiB)
	def(&d.Limits.Tmp, GiB)
	def(&d.Sandbox.Pids, 64)
	def(&d.Sandbox.Memory, 4*GiB)
	def(&d.Sandbox.Timeout, Timeout(10*time.Minute))
	def(&d.Sandbox.Output, 64*MiB)
	def(&d.Sandbox.Tmp, GiB)
	def(&d.Sandbox.CPUWeight, 100)
	def(&d.Sandbox.OpenFiles, 65536)
	def(&d.Sandbox.Background.Keep, KeepJobs)
	def(&d.Sandbox.Background.Jobs, 8)
	def(&d.Sandbox.Background.Timeout, TimeoutNone)
	def(&d.Sandbox.Background.Log, MiB)
	def(&d.Sandbox.Network, NetworkNone)
	if len(d.Sandbox.Read) == 0 {
		d.Sandbox.Read = []string{"/usr", "/opt"}
	}
	def(&d.Session.Pids, 8192)
	def(&d.Secrets.Rules, RulesDefault)
	def(&d.Secrets.Escapes, EscapesPass)
	def(&d.Secrets.Binary, BinaryPass)
	return &d
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
