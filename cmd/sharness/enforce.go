package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// sessionFlags are common to what opens a session.
type sessionFlags struct {
	manifest  string
	workspace string
	events    []string
	allowOpen []string
	files     bool // refused file calls are events too
	argv      bool // refused execs come with their arguments
}

// add adds them; which says what stands for a manifest that is not named.
func (f *sessionFlags) add(cmd *cobra.Command, which string) {
	cmd.Flags().StringVarP(&f.manifest, "manifest", "m", "", "manifest `FILE`, or the name of one in "+manifestDir+which)
	cmd.Flags().StringVar(&f.workspace, "workspace", "", "`FOLDER` to work on (default the manifest's, which is by default the current folder)")
	cmd.Flags().StringArrayVar(&f.events, "events", nil, "where events go: `SINK` is -, a file, journald or syslog; repeatable (default /var/log/sharness/NAME.jsonl)")
	cmd.Flags().StringArrayVar(&f.allowOpen, "allow-open", nil, "start although `DOOR` is open on this host; repeatable, logged")
	completeManifests(cmd)
	completeWords(cmd, "allow-open", doorIDs)
	_ = cmd.MarkFlagDirname("workspace")
}

// open reads the manifest and makes the options that do not depend on the kind of session.
func (f *sessionFlags) open(cmd string) (launcher.Options, error) {
	o := launcher.Options{AllowOpen: f.allowOpen, Env: os.Environ(), Notice: notice}
	if os.Geteuid() != 0 {
		return o, &exitError{126, errors.New("must be root to make namespaces, mounts and cgroups; run it with sudo")}
	}
	if err := knownOpen(f.allowOpen); err != nil {
		return o, err
	}
	path := manifestFile(f.manifest)
	if f.manifest == "" {
		path = filepath.Join(manifestDir, filepath.Base(cmd)+".yaml")
	}
	m, err := enforcedManifest(path)
	if _, serr := os.Lstat(path); errors.Is(serr, os.ErrNotExist) {
		return o, noManifest(path, cmd, f.manifest)
	}
	if err != nil {
		return o, &exitError{126, err}
	}
	o.Manifest = m
	return f.place(o, path)
}

// knownOpen refuses a door that there is none of.
func knownOpen(doors []string) error {
	for _, id := range doors {
		if _, ok := sidedoor.ByID(id); !ok {
			return refuse("--allow-open %s: no such door; the nearest are: %s; sharness doctor lists all", id, strings.Join(closest(id, doorIDs()), ", "))
		}
	}
	return nil
}

// place fills in where a session of o.Manifest runs, and where its events go.
func (f *sessionFlags) place(o launcher.Options, path string) (launcher.Options, error) {
	var err error
	m := o.Manifest
	o.EventsFiles, o.EventsArgv = f.files, f.argv
	if o.Dir, err = os.Getwd(); err != nil {
		return o, &exitError{126, fmt.Errorf("current folder: %w", err)}
	}
	o.Workspace = f.workspace
	if o.Workspace == "" {
		o.Workspace = m.Workspace.Path
	}
	if o.Path, err = filepath.Abs(path); err != nil {
		return o, &exitError{126, fmt.Errorf("manifest %s: %w", path, err)}
	}
	if len(f.events) == 0 {
		o.Sinks = []sink.Spec{launcher.DefaultSink(m.Name)}
	}
	for _, e := range f.events {
		spec, err := sink.ParseSpec(e, o.Dir)
		if err != nil {
			return o, &exitError{126, err}
		}
		o.Sinks = append(o.Sinks, spec)
	}
	return o, nil
}

// noManifest says how to make one, if there is a command to make one for.
func noManifest(path, cmd, given string) error {
	if cmd == "" {
		return &exitError{126, fmt.Errorf("manifest %s: does not exist; %smake one: sudo sharness manifest new -m %s -- CMD", path, meant(given), pin.Quote(path))}
	}
	if _, err := pin.LookPath(cmd, userPath("")); err != nil {
		if path := new(fs.PathError); errors.As(err, &path) {
			err = fmt.Errorf("%s: %w", cmd, path.Err)
		}
		return &exitError{notStarted(err), fmt.Errorf("command %w", err)}
	}
	m := ""
	if given != "" {
		m = "-m " + pin.Quote(path) + " "
	}
	return &exitError{126, fmt.Errorf("manifest %s: does not exist; %smake one: sudo sharness manifest new %s--profile %s -- %s",
		path, meant(given), m, profileFor(filepath.Base(cmd)), pin.Quote(cmd))}
}

// enforcedManifest reads a manifest that decides what may run: it must be where nobody but root can write.
func enforcedManifest(path string) (*manifest.Manifest, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", path, err)
	}
	data, err := pin.ReadManifest(abs)
	if err != nil {
		return nil, fmt.Errorf("manifest %w", err)
	}
	m, err := manifest.Parse(path, data)
	if err != nil {
		return nil, err
	}
	if m.Learned != nil && !m.Learned.Complete {
		return nil, fmt.Errorf("manifest %s: was learned from an incomplete run; learn again", path)
	}
	return m.WithDefaults(), nil
}

// profileFor suggests a profile by the command's name.
func profileFor(name string) string {
	for _, p := range manifest.Profiles() {
		if p == name {
			return p
		}
	}
	return "plain"
}

func newEnforceCmd() *cobra.Command {
	var f sessionFlags
	cmd := &cobra.Command{
		Use:   "enforce [-m FILE] [--workspace DIR] [--events SINK]… [--events-files] [--events-argv] [--allow-open DOOR]… -- CMD [ARG…]",
		Short: "Run CMD in the domain its manifest describes",
		Long: `enforce starts CMD in its domain: own namespaces, a view in which only pinned files can be executed, Landlock,
two seccomp filters, its own uid without capabilities. What the manifest does not list cannot be started, and what
is routed (a shell, git) runs in a fresh sandbox of the bash-server.

The exit status is CMD's own (128+n for signal n), 125 when sharness failed, 126 when it refused to start and
nothing has changed, 127 when CMD was not found.`,
		Example: "  sudo sharness enforce -- claude\n  sudo sharness enforce -m agent.yaml --workspace ~/project --events - -- agent --flag",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && f.manifest != "" {
				return f.unnamed()
			}
			return named(cmd, args)
		},

		ValidArgsFunction: commandNames,
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" {
				return &exitError{127, errors.New("command not found: its name is empty")}
			}
			o, err := f.open(args[0])
			if err != nil {
				return err
			}
			if err := sameCommand(args[0], o.Manifest); err != nil {
				return err
			}
			o.Args, o.Stdio = args[1:], [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
			status, err := launcher.Enforce(o)
			if err != nil {
				return asExit(err, o.Path)
			}
			if status != 0 {
				return &exitError{code: status}
			}
			return nil
		},
	}
	f.add(cmd, " (default: the last part of CMD)")
	cmd.Flags().BoolVar(&f.files, "events-files", false, "report refused calls on files too (open, rename …): many, because programs try what they may not read")
	f.addArgv(cmd)
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// unnamed says what to type where a manifest was given and no command: an agent is not started by a line that does not name it.
func (f *sessionFlags) unnamed() error {
	d, _, err := loadManifest(f.manifest)
	if err != nil {
		return err
	}
	return refuse("enforce: name what to run: sudo sharness enforce -m %s -- %s", pin.Quote(f.manifest), pin.Quote(filepath.Base(d.Manifest().Command[0])))
}

// addArgv is for what has an orchestrator: only its calls are seen.
func (f *sessionFlags) addArgv(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.argv, "events-argv", false, "report the arguments of refused execs too, cut and without secrets; tokens stand there")
}

// notStarted is the status for a command that cannot be started, as shells have it: a file that may not be executed was found.
func notStarted(err error) int {
	if errors.Is(err, fs.ErrPermission) {
		return 126
	}
	return 127
}

// sameCommand refuses to run another command than the manifest's under its name.
func sameCommand(name string, m *manifest.Manifest) error {
	if _, err := os.Stat(m.Command[0]); errors.Is(err, os.ErrNotExist) {
		return &exitError{127, fmt.Errorf("command %s: the manifest %s is for %s, which is not there", name, m.Name, m.Command[0])}
	}
	if !strings.Contains(name, "/") && (filepath.Base(m.Command[0]) == name || m.Name == name) {
		return nil
	}
	found, err := pin.LookPath(name, userPath(""))
	if path := new(fs.PathError); errors.As(err, &path) {
		return &exitError{notStarted(err), fmt.Errorf("command %s: %w", name, path.Err)}
	}
	if err != nil {
		return &exitError{127, fmt.Errorf("command %w", err)}
	}
	got, gerr := filepath.EvalSymlinks(found)
	want, werr := filepath.EvalSymlinks(m.Command[0])
	if found != m.Command[0] && (gerr != nil || werr != nil || got != want) {
		return &exitError{126, fmt.Errorf("command %s: the manifest %s is for %s", name, m.Name, m.Command[0])}
	}
	return nil
}

// asExit gives an error its exit status, and changed files the one command that accepts them.
func asExit(err error, path string) error {
	var changed *launcher.ChangedError
	if errors.As(err, &changed) {
		return &exitError{126, accept(changed, path)}
	}
	var refused *launcher.Refused
	if errors.As(err, &refused) {
		return &exitError{126, err}
	}
	return &exitError{125, err}
}

// notice prints one line for the person, beside whatever the terminal shows.
func notice(line string) {
	end := "\n"
	if _, err := unix.IoctlGetTermios(2, unix.TCGETS); err == nil {
		end = "\r\n" // it is raw while an orchestrator has it
	}
	prefix := "sharness: "
	for _, text := range errorLines(line) {
		fmt.Fprint(os.Stderr, prefix+text+end)
		prefix = "  "
	}
}

func newServeCmd() *cobra.Command {
	var f sessionFlags
	cmd := &cobra.Command{
		Use:   "serve -m FILE [--workspace DIR] [--events SINK]… [--allow-open DOOR]…",
		Short: "Offer the bash-server to root on this host, without an orchestrator",
		Long: `serve runs the bash-server alone, until it is interrupted. It prints the socket; root connects to it, from
another terminal. The client is sharness's, in libexec:

    sudo SHARNESS_SOCKET=/run/sharness/ID/bash.sock /usr/local/libexec/sharness/sharness-bash -c 'make test'`,
		Example: "  sudo sharness serve -m claude --workspace ~/project",
		Args:    cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if f.manifest == "" {
				return &exitError{126, errors.New("serve: which manifest? give one: sudo sharness serve -m claude")}
			}
			o, err := f.open("")
			if err != nil {
				return err
			}
			o.Ready = func(socket string) { fmt.Println("SHARNESS_SOCKET=" + socket) }
			stop := make(chan struct{})
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			go func() {
				<-signals
				close(stop)
			}()
			if err := launcher.Serve(o, stop); err != nil {
				return asExit(err, o.Path)
			}
			return nil
		},
	}
	f.add(cmd, "; has to be given")
	return cmd
}
