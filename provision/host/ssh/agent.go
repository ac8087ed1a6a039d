package ssh

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/crypto/ssh"

	"clusterctl/provision/host"
)

// Program is the running clusterctl, in the form in which it is sent to machines.
type Program struct {
	Digest string                                       // SHA-256, hex
	Arch   string                                       // as printed by uname -m
	Gzip   func(context.Context) (io.ReadCloser, error) // its content, compressed
	// Library is the parent of the directory, named by the digest, that it is sent to; empty means host.Library.
	Library string
	// SilenceTimeout is how long the machine may neither answer nor accept data; zero means a minute.
	SilenceTimeout time.Duration
}

// probeCommand is a command that reports everything that starting the agent depends on. /bin/sh runs it, whatever the
// login shell is. It contains no single quote, backslash, exclamation mark or newline, which csh and fish interpret
// differently.
const probeCommand = `/bin/sh -c 'LC_ALL=C; export LC_ALL; echo ` + probeMarker + `; id -u; uname -m; uname -s; ` +
	`if [ "$(id -u)" = 0 ]; then echo root; ` +
	`elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then echo nopass; ` +
	`elif command -v doas >/dev/null && doas -n true 2>/dev/null; then echo doas; ` +
	`elif command -v sudo >/dev/null; then case "$(sudo -n true 2>&1)" in *"have a tty"*) echo tty;; *) echo pass;; esac; ` +
	`elif command -v doas >/dev/null; then echo doaspass; else echo nosudo; fi; ` +
	`if [ -x %s ]; then echo there; else echo absent; fi'`

// probeMarker is the first word that probe prints. Text before it comes from the login shell.
const probeMarker = "clusterctl-probe"

// Start starts the agent on the machine, and sends the program first if it is missing. The returned connection is the
// agent's standard input and output.
func (c *Client) Start(ctx context.Context, p Program) (io.ReadWriteCloser, error) {
	silence := cmp.Or(p.SilenceTimeout, time.Minute)
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	w := watchdog{time.AfterFunc(silence, cancel), silence}
	defer w.Stop()
	// Opening a session does not observe a context.
	stop := context.AfterFunc(watched, func() { _ = c.Client.Close() })
	defer stop()
	s, err := c.startAgent(watched, p, w)
	if err == nil && stop() {
		return s, nil
	}
	if watched.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: the login works, and then the machine is silent for %s: its shell, or the disk "+
			"that a home or %s is on, hangs", ErrLogin, silence, host.LibraryDir)
	}
	return nil, cmp.Or(err, ctx.Err())
}

// watchdog cancels the start of an agent if the machine is silent for too long.
type watchdog struct {
	*time.Timer
	silence time.Duration
}

func (w watchdog) feed() { w.Reset(w.silence) }

// startAgent starts the agent, and resets the watchdog at each sign of life.
func (c *Client) startAgent(ctx context.Context, p Program, w watchdog) (io.ReadWriteCloser, error) {
	path := cmp.Or(p.Library, host.LibraryDir) + "/" + p.Digest + "/clusterctl"
	out, err := c.output(ctx, fmt.Sprintf(probeCommand, path), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: the login works but runs no command: %w", ErrLogin, err)
	}
	found, err := parseProbe(string(out))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogin, err)
	}
	if found[2] != "Linux" || found[1] != p.Arch {
		return nil, fmt.Errorf("the machine is %s on %s, this clusterctl is for Linux on %s: use the release "+
			"for that architecture", found[2], found[1], p.Arch)
	}
	w.feed()
	prefix, input, err := c.sudoPrefix(found[3])
	if err != nil {
		return nil, err
	}
	w.feed()
	if found[4] == "absent" {
		c.WasProgramSent = true
		if err := c.sendProgram(ctx, p, path, prefix, input, w); err != nil {
			return nil, err
		}
		w.feed()
	}
	return c.start(ctx, prefix+path+" agent", input)
}

// parseProbe parses the output of probeCommand.
func parseProbe(out string) ([]string, error) {
	before, after, ok := strings.Cut(out, probeMarker)
	found := strings.Fields(after)
	switch {
	case strings.TrimSpace(out) == "":
		return nil, errors.New("the login works, and the login shell prints nothing when it is to run a command: " +
			"it is not a shell that runs commands (the last field of the user's line in /etc/passwd), or " +
			"ForceCommand in the machine's sshd_config runs another one")
	case !ok:
		return nil, fmt.Errorf("the login works, and instead of running a command the login shell prints %q",
			firstLine(out))
	case strings.TrimSpace(before) != "":
		return nil, fmt.Errorf("the login shell prints text before it runs a command, which would get in the way of "+
			"what the agent says: %q. Have the file that prints it (.bashrc, .cshrc, config.fish, /etc/profile.d) do "+
			"so in interactive shells only", firstLine(before))
	case len(found) != 5:
		return nil, fmt.Errorf("the login shell prints more than it was asked for: "+
			"%q", firstLine(strings.Join(found, " ")))
	}
	return found, nil
}

// sudoPrefix returns the prefix that makes a command run as root, and the text to write to its input first.
func (c *Client) sudoPrefix(sudo string) (prefix, input string, err error) {
	switch sudo {
	case "root":
		return "", "", nil
	case "nopass":
		return "sudo -n ", "", nil
	case "doas":
		return "doas -n ", "", nil
	case "doaspass":
		return "", "", fmt.Errorf("%w: doas asks %s for a password, and takes it from a terminal only: write \"permit "+
			"nopass %s\" into the machine's /etc/doas.conf, or log in as root (ssh { user = \"root\" })", ErrRoot,
			c.Target.User, c.Target.User)
	case "tty":
		return "", "", fmt.Errorf("%w: sudo wants a terminal, which a program has not: write \"Defaults:%s "+
			"!requiretty\" into a file in the machine's /etc/sudoers.d, or log in as root (ssh { user = \"root\" })",
			ErrRoot, c.Target.User)
	case "nosudo":
		return "", "", fmt.Errorf("%w: user %s is not root and the machine has neither sudo nor doas: log in as root "+
			"(ssh { user = \"root\" }) or install sudo", ErrRoot, c.Target.User)
	}
	if c.machine.SSH.SudoPasswordEnv == "" {
		return "", "", fmt.Errorf("%w: sudo asks %s for a password: name the environment variable that holds it in "+
			"the machine's ssh block (sudo_password_env = \"…\"), or allow sudo without one", ErrRoot, c.Target.User)
	}
	password := c.getenv(c.machine.SSH.SudoPasswordEnv)
	if password == "" {
		return "", "", fmt.Errorf("%w: the environment variable %s, named by sudo_password_env, is empty", ErrRoot,
			c.machine.SSH.SudoPasswordEnv)
	}
	// sudo reads one line byte by byte and leaves the rest of the input to the command.
	prefix, input = "sudo -S -k -p '' ", password+"\n"
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if _, err := c.output(ctx, prefix+"true", strings.NewReader(input)); err != nil {
		return "", "", fmt.Errorf("%w: sudo does not let %s: %w. Check the password in %s and the machine's sudoers",
			ErrRoot, c.Target.User, err, c.machine.SSH.SudoPasswordEnv)
	}
	return prefix, input, nil
}

// sendProgram sends the program. A run that is interrupted leaves a temporary file behind.
func (c *Client) sendProgram(ctx context.Context, p Program, path, prefix, input string, w watchdog) error {
	w.Stop() // compressing may take as long as this computer needs
	content, err := p.Gzip(ctx)
	w.feed()
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	dir := path[:strings.LastIndexByte(path, '/')]
	script := fmt.Sprintf(
		`umask 022; set -e; mkdir -p %[1]s; t=$(mktemp %[1]s/.incoming.XXXXXX); trap 'rm -f "$t"' EXIT; gzip -dc >"$t"; echo "%[2]s  $t" | sha256sum -c --status; chmod 755 "$t"; mv -f "$t" %[3]s`,
		dir,
		p.Digest,
		path,
	)
	if _, err := c.output(ctx, prefix+"sh -c "+quote(script),
		io.MultiReader(strings.NewReader(input), &watchedReader{content, w})); err != nil {
		return fmt.Errorf("bring clusterctl to the machine: %w", err)
	}
	return nil
}

// watchedReader resets the watchdog whenever the machine has accepted another piece of the data.
type watchedReader struct {
	io.Reader
	watchdog
}

func (t *watchedReader) Read(b []byte) (int, error) {
	t.feed()
	return t.Reader.Read(b)
}

// output runs a command and returns its standard output.
func (c *Client) output(ctx context.Context, command string, input io.Reader) ([]byte, error) {
	var stdout limitedBuffer // limited, because the machine is not trusted and may write without end
	if err := c.run(ctx, command, input, &stdout); err != nil {
		return nil, err
	}
	return []byte(stdout.String()), nil
}

// Run runs a command with the rights of the login, and writes its standard output to out, which may be without end. It
// ends when ctx ends.
func (c *Client) Run(ctx context.Context, command string, out io.Writer) error {
	return c.run(ctx, command, nil, out)
}

func (c *Client) run(ctx context.Context, command string, input io.Reader, out io.Writer) error {
	session, err := c.session(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	var stderr limitedBuffer
	session.Stdin, session.Stdout, session.Stderr = input, out, &stderr
	if err := session.Run(command); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text := failureLine(stderr.String()); text != "" {
			return errors.New(text)
		}
		if missing := (*ssh.ExitMissingError)(nil); errors.As(err, &missing) {
			return errors.New("the connection ended while the machine ran a command: the network on the way to " +
				"it was cut, or sshd there was stopped")
		}
		return err
	}
	return nil
}

// sessionTimeout is how long a server may take to notice that the previous session has ended.
const sessionTimeout = 10 * time.Second

// session opens a session. It retries, because a server with MaxSessions 1 may still count the previous session.
func (c *Client) session(ctx context.Context) (*ssh.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := c.NewSession()
		if refused := (*ssh.OpenChannelError)(nil); err == nil || !errors.As(err, &refused) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the machine's sshd opens no session (%w): see MaxSessions in its sshd_config, "+
				"which must be 1 at least", err)
		case <-tick.C:
		}
	}
}

// start starts the agent.
func (c *Client) start(ctx context.Context, command, input string) (io.ReadWriteCloser, error) {
	session, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	s := &agentStream{session: session}
	session.Stderr = &s.stderr
	if s.in, err = session.StdinPipe(); err == nil {
		s.out, err = session.StdoutPipe()
	}
	if err == nil {
		err = session.Start(command)
	}
	if err == nil {
		_, err = io.WriteString(s.in, input)
	}
	if err != nil {
		_ = session.Close()
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	return s, ctx.Err()
}

// agentStream is the agent's input and output. When the agent ends on its own, Read returns an error with the agent's
// standard error.
type agentStream struct {
	session  *ssh.Session
	in       io.WriteCloser
	out      io.Reader
	stderr   limitedBuffer
	once     sync.Once
	waitOnce sync.Once // guards the wait for the end of the agent
}

func (s *agentStream) Write(b []byte) (int, error) { return s.in.Write(b) }

func (s *agentStream) Read(b []byte) (int, error) {
	n, err := s.out.Read(b)
	if errors.Is(err, io.EOF) {
		s.awaitExit()
		if text := s.stderr.String(); text != "" {
			return n, fmt.Errorf("the agent ended: %s", failureLine(text))
		}
	}
	return n, err
}

// exitTimeout is how long to wait for an agent to exit after it has closed its output.
const exitTimeout = time.Second

// awaitExit waits at most exitTimeout until the agent has exited, so that its standard error is complete.
func (s *agentStream) awaitExit() {
	s.waitOnce.Do(func() {
		done := make(chan struct{})
		go func() { // ends with the session
			_ = s.session.Wait() // only the standard error matters, not the exit status
			close(done)
		}()
		timer := time.NewTimer(exitTimeout)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		}
	})
}

// Close closes the agent's input, which makes the agent exit.
func (s *agentStream) Close() error {
	var err error
	s.once.Do(func() {
		_ = s.in.Close()
		// An agent that has seen the end of its input may have closed the session first.
		if err = s.session.Close(); errors.Is(err, io.EOF) {
			err = nil
		}
	})
	return err
}

// limitedBuffer keeps the first 4096 bytes that are written to it.
type limitedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *limitedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := 4096 - l.buf.Len(); room > 0 {
		l.buf.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

func (l *limitedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(l.buf.String())
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// firstLine returns the first line of a text.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// failureLine returns the line of a command's standard error that says why the command failed. It skips the shells'
// warnings about missing locales. It removes control characters, because the machine is not trusted.
func failureLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "setlocale") &&
			!strings.Contains(line, "cannot change locale") {
			return line
		}
	}
	return firstLine(text)
}
