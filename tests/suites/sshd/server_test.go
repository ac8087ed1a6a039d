package sshd

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// keyLab is a folder of keys, and OpenSSH servers that use them.
type keyLab struct {
	dir string
}

// newKeyLab creates the keys of a user: mine, second, locked (with a passphrase) and stranger, and those of two
// authorities.
func newKeyLab(t *testing.T) *keyLab {
	t.Helper()
	l := &keyLab{dir: t.TempDir()}
	if err := os.Mkdir(l.path("home"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "second", "stranger", "held", "ca", "otherca", "host", "host2"} {
		l.runCommand(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", l.path(name))
	}
	l.runCommand(t, "ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-C", "hostrsa", "-f", l.path("hostrsa"))
	l.runCommand(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-C", "locked", "-f", l.path("locked"))
	return l
}

func (l *keyLab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *keyLab) publicKey(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(l.path(name + ".pub"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// copyKey copies a key under another name.
func (l *keyLab) copyKey(t *testing.T, from, to string) {
	t.Helper()
	for _, end := range []string{"", ".pub"} {
		text, err := os.ReadFile(l.path(from + end))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, l.path(to+end), string(text))
	}
}

func (l *keyLab) runCommand(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// startServer starts an sshd with host keys that accepts the keys in authorized, and returns its port. Its sessions
// have a home directory without files, because a login shell would run those of the user who runs the tests, which
// takes up to a second.
func (l *keyLab) startServer(t *testing.T, name string, authorized []string, more ...string) string {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		if program = "/usr/sbin/sshd"; !pathExists(program) {
			t.Fatal("there is no sshd here: install openssh-server")
		}
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	_ = ln.Close()
	var keys []string
	for _, a := range authorized {
		keys = append(keys, l.publicKey(t, a))
	}
	writeFile(t, l.path(name+".authorized"), strings.Join(keys, "\n")+"\n")
	writeFile(t, l.path(name+".conf"), strings.Join(append([]string{
		"Port " + port, "ListenAddress 127.0.0.1", "PidFile none", "UsePAM no", "StrictModes no", "PermitRootLogin yes",
		"PasswordAuthentication no",
		"AuthorizedKeysFile " + l.path(name+".authorized"), "MaxStartups 100", "SetEnv HOME=" + l.path("home"),
	}, more...), "\n")+"\n")
	var log bytes.Buffer
	c := exec.Command(program, "-D", "-e", "-f", l.path(name+".conf"))
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s: %s", name, &log)
		}
	})
	deadline := time.After(10 * time.Second)
	for {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
			return port
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("sshd %s ended: %v: %s", name, err, &log)
		case <-deadline:
			t.Fatalf("sshd %s does not listen: %s", name, &log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startAgent starts an ssh-agent with keys, and returns its socket.
func (l *keyLab) startAgent(t *testing.T, keys ...string) string {
	t.Helper()
	socket := l.path("agent")
	c := exec.Command("ssh-agent", "-D", "-a", socket)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
	})
	for deadline := time.Now().Add(10 * time.Second); !pathExists(socket); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("ssh-agent does not listen")
		}
	}
	for _, k := range keys {
		add := exec.Command("ssh-add", "-q", l.path(k))
		add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("ssh-add: %v: %s", err, out)
		}
	}
	return socket
}

func pathExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
