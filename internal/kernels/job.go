package main

import "time"

// job is one program that the machine runs.
type job struct {
	Name    string // also the name of the file with its output
	Dir     string // below the copy of this repository
	Argv    []string
	Timeout time.Duration

	// Test says that the program is a test binary, which is built from the package in Dir.
	Test bool
	Cgo  bool // as the package needs it
	Skip string
	Run  string
}

// source is where the machine finds the copy of this repository, with programs and tests built.
const source = "/src"

// jobs is everything that is run, in this order. Left out is what needs the go command or node inside, whole suites of
// tools, and what measures how soon something happens; the emulated processor is ten to twenty times slower.
var jobs = []job{
	{Name: "doctor", Argv: []string{"bin/sharness", "doctor", "--json"}},
	{Name: "doctor-text", Argv: []string{"bin/sharness", "doctor"}},

	{Name: "agent", Dir: "agent", Test: true, Skip: "^TestFloodAddsUpAndHidesNothing$"},
	{Name: "internal-kerneltest", Dir: "internal/kerneltest", Test: true},
	{Name: "internal-confine", Dir: "internal/confine", Test: true},
	{Name: "launcher-host", Dir: "launcher/host", Test: true},
	{Name: "launcher-stage", Dir: "launcher/stage", Test: true},
	{Name: "launcher-filter", Dir: "launcher/filter", Test: true, Cgo: true,
		Skip: "^(TestHelperIsConfinedAndStillWorks|TestToolsWorkUnderTheCommandFilter|TestNodeWorks.*|TestInterpretersWork.*|TestGo.*)$"},
	// The table of what each layer does alone holds for one kernel and one errata level. TCP takes as much as a twentieth
	// of the memory, and the machine has little.
	{Name: "launcher", Dir: "launcher", Test: true, Cgo: true, Skip: "^(TestEachLayerAlone.*|TestTCPBuffersAreBounded)$"},
	// Without those that measure how soon something happens.
	{Name: "internal-sessiontest", Dir: "internal/sessiontest", Test: true,
		Run: "^(TestLimitsOf.*|TestDaemonOf.*|TestClientThatGoes.*|TestNextStartRemoves.*|TestSessionEndsWithPidOne.*|TestSetgidFolder.*|" +
			"TestFilesMove.*|TestFrozenFolder.*|TestWorkspaceIsOpened.*|TestEverythingASessionLeaves.*)$",
		Skip: "^TestLimitsOfACommandHoldAndAreReported$/^(disk|output_and_error)$"},
	{Name: "cmd-sharness", Dir: "cmd/sharness", Test: true, Cgo: true, Run: "^(TestSideDoor.*|TestMemfdInTheManifest.*|TestDoctor.*)$"},
	{Name: "launcher-protect", Dir: "launcher/protect", Test: true, Run: "^(TestSideDoor.*|TestReplacing.*)$"},
	{Name: "event-sink", Dir: "event/sink", Test: true},
}

// record is one line of what the machine says: the start of a job, a line of its output, or its end.
type record struct {
	Job   string
	Start bool          `json:",omitempty"`
	Out   string        `json:",omitempty"`
	Exit  *int          `json:",omitempty"`
	Took  time.Duration `json:",omitempty"`
	Error string        `json:",omitempty"`
	Fact  string        `json:",omitempty"` // about the machine
}
