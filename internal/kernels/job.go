package main

import "time"

// job is one program that the machine runs.
type job struct {
	Name    string // also the name of the file with its output
	Dir     string // below the copy of this repository
	Argv    []string
	Timeout time.Duration
	Home    []string // files that it writes, in /tmp of the machine, to be brought home beside its output

	// Test says that the program is a test binary, which is built from the package in Dir.
	Test   bool
	Cgo    bool   // as the package needs it
	Skip   string // tests that cannot run in a machine
	Run    string // tests that are about the kernel; empty: all of them
	All    string // tests that are run with -all; empty: as Run says
	ByHand bool   // run only with -all
}

// source is where the machine finds the copy of this repository, with programs and tests built.
const source = "/src"

// jobs is everything that is run, in this order. What is about the kernel comes first and always; the rest, whose result
// no kernel changes as far as anybody knows, only with -all: the emulated processor is ten to twenty times slower.
// Nowhere runs what needs the go command inside, and what measures how soon something happens under load.
var jobs = []job{
	{Name: "doctor", Argv: []string{"bin/sharness", "doctor", "--json"}},
	{Name: "doctor-text", Argv: []string{"bin/sharness", "doctor"}},
	// The page for docs/evidence, and all that is behind it. What each layer does alone is measured on one kernel.
	{Name: "prove", Argv: []string{"bin/sharness", "prove", "--sandbox", "--markdown", "/tmp/evidence.md", "--json", "/tmp/evidence.json"},
		Home: []string{"evidence.md", "evidence.json"}},

	{Name: "agent", Dir: "agent", Test: true, Skip: "^TestFloodAddsUpAndHidesNothing$"},
	{Name: "internal-kerneltest", Dir: "internal/kerneltest", Test: true},
	{Name: "internal-confine", Dir: "internal/confine", Test: true},
	{Name: "launcher-host", Dir: "launcher/host", Test: true},
	{Name: "launcher-stage", Dir: "launcher/stage", Test: true},
	// gpg makes a key for a minute.
	{Name: "launcher-filter", Dir: "launcher/filter", Test: true, Cgo: true,
		Skip: "^(TestHelperIsConfinedAndStillWorks|TestGo.*)$|^TestToolsWorkUnderTheCommandFilter$/^gpg$"},
	// The table of what each layer does alone holds for one kernel and one errata level. TCP takes as much as a twentieth
	// of the memory, and the machine has little.
	{Name: "launcher", Dir: "launcher", Test: true, Cgo: true, Skip: "^(TestEachLayerAlone.*|TestTCPBuffersAreBounded)$"},
	{Name: "internal-sessiontest", Dir: "internal/sessiontest", Test: true,
		Run: "^(TestNothingOfASessionLives.*|TestLimitsOf.*|TestDaemonOf.*|TestClientThatGoes.*|TestSetgidFolder.*|" +
			"TestFilesMove.*|TestWorkspaceIsOpened.*|TestEverythingASessionLeaves.*|TestDevServer.*|TestOrchestratorDoesNotReach.*|TestJobsAndCommandsEnd.*)$",
		All: "^Test",
		Skip: "^(TestToolsOf.*|TestFloodOf.*|TestFiftyCommands.*|TestServerHolds.*)$|" +
			"^TestLimitsOfACommandHoldAndAreReported$/^(disk|output_and_error)$"},
	{Name: "cmd-sharness", Dir: "cmd/sharness", Test: true, Cgo: true,
		Run: "^TestSideDoor$/^dynamic$|^TestLearn$/^learn_(shell|late)$|^(TestSideDoorOnATerminal|TestMemfdInTheManifest.*|TestDoctor.*)$",
		All: "^(TestSideDoor.*|TestMemfdInTheManifest.*|TestDoctor.*|TestLearn)$"},

	{Name: "launcher-protect", Dir: "launcher/protect", Test: true, ByHand: true, Run: "^(TestSideDoor.*|TestReplacing.*)$"},
	{Name: "event-sink", Dir: "event/sink", Test: true, ByHand: true},
}

// record is one line of what the machine says: the start of a job, a line of its output, or its end.
type record struct {
	Job   string
	Start bool          `json:",omitempty"`
	Out   string        `json:",omitempty"`
	Exit  *int          `json:",omitempty"`
	Took  time.Duration `json:",omitempty"`
	Error string        `json:",omitempty"`
	Fact  string        `json:",omitempty"` // about the machine: its kernel
	Pace  int           `json:",omitempty"` // about the machine: how many times slower it is
	File  string        `json:",omitempty"` // name of a file that it left, with its content
	Data  []byte        `json:",omitempty"`
}
