package sshd

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host/ssh"
)

// machineType returns the output of uname -m.
func machineType(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("uname", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// fakeProgram is a program that is sent in place of clusterctl. It repeats its input.
func fakeProgram(t *testing.T, library string) ssh.Program {
	t.Helper()
	const text = "#!/bin/sh\ncat\n"
	sum := sha256.Sum256([]byte(text))
	return ssh.Program{Digest: hex.EncodeToString(sum[:]), Arch: machineType(t), Library: library,
		SilenceTimeout: time.Minute,
		Gzip: func(context.Context) (io.ReadCloser, error) {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			if _, err := io.WriteString(w, text); err != nil {
				return nil, err
			}
			return io.NopCloser(&out), w.Close()
		}}
}

func mustConnect(t *testing.T, l *keyLab, port, home string) *ssh.Client {
	t.Helper()
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(home, ".ssh", "config"), "Host *\n IdentityFile "+l.path("mine")+"\n")
	m := config.Machine{IP: netip.MustParseAddr("127.0.0.1"), SSH: config.SSH{User: userName(t), Port: number}}
	c, err := ssh.Dial(
		t.Context(),
		m,
		ssh.Options{
			Files:             ssh.Files{Home: home, System: os.DevNull},
			AcceptNewHostKeys: true,
			Getenv:            func(string) string { return "" },
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The agent starts under the login shells that users of machines have.
func TestTheAgentStartsUnderAllLoginShells(t *testing.T) {
	l := newKeyLab(t)
	rows := []struct {
		name, force string
		says        string // part of the error; empty: the agent starts
	}{
		{"sh", `exec sh -c "$SSH_ORIGINAL_COMMAND"`, ""},
		{"bash", `exec bash -c "$SSH_ORIGINAL_COMMAND"`, ""},
		{"fish", `exec fish -c "$SSH_ORIGINAL_COMMAND"`, ""},
		{"csh", `exec csh -c "$SSH_ORIGINAL_COMMAND"`, ""},
		{"tcsh", `exec tcsh -c "$SSH_ORIGINAL_COMMAND"`, ""},
		{"an unknown language", `LC_ALL=xx_YY.UTF-8 exec bash -c "$SSH_ORIGINAL_COMMAND"`, ""},
		{"a strict umask", `umask 077; exec sh -c "$SSH_ORIGINAL_COMMAND"`, ""},
		{"a shell that prints nothing", `exit 0`, "prints nothing"},
		{
			"a shell that runs nothing",
			`echo This account is not available.; exit 0`,
			`instead of running a command the login shell prints "This account is not available."`,
		},
		{
			"a shell that fails, in an unknown language",
			`LC_ALL=xx_YY.UTF-8 bash -c "echo no shell for you >&2; exit 1"`,
			"runs no command: no shell for you",
		},
		{
			"a shell that prints control characters",
			`printf "\033[?1034h"; exec sh -c "$SSH_ORIGINAL_COMMAND"`,
			`prints text before it runs a command, which would get in the way of what the agent says: "\x1b[?1034h"`,
		},
		{"a greeting", `echo Welcome; exec sh -c "$SSH_ORIGINAL_COMMAND"`, `"Welcome"`},
		{"control characters in an error", `printf "\033]0;owned\007no\n" >&2; exit 1`, "runs no command: ]0;ownedno"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			script := l.path("force-" + strings.ReplaceAll(row.name, " ", "-"))
			writeFile(t, script, row.force+"\n")
			port := l.startServer(t, strings.ReplaceAll(row.name, " ", "-"), []string{"mine"},
				"HostKey "+l.path("host"), "ForceCommand . "+script, "MaxSessions 1")
			home, library := t.TempDir(), filepath.Join(t.TempDir(), "lib", "clusterctl")
			c := mustConnect(t, l, port, home)
			stream, err := c.Start(t.Context(), fakeProgram(t, library))
			if row.says != "" {
				if !errors.Is(err, ssh.ErrLogin) || !strings.Contains(err.Error(), row.says) {
					t.Errorf("%v, and should say %q", err, row.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(stream, "hello\n"); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 6)
			if _, err := io.ReadFull(stream, answer); err != nil || string(answer) != "hello\n" {
				t.Errorf("the agent answers %q, %v", answer, err)
			}
			if err := stream.Close(); err != nil {
				t.Error(err)
			}
			for p := filepath.Dir(library); ; p = filepath.Join(p, "clusterctl") {
				info, err := os.Stat(p)
				if err != nil || info.Mode().Perm() != 0o755 {
					t.Errorf("%s has mode %v, %v", p, info.Mode(), err)
				}
				if p == library {
					break
				}
			}
		})
	}
}

func TestCutConnectionsAreReported(t *testing.T) {
	l := newKeyLab(t)
	script := l.path("force-cut")
	writeFile(t, script, `kill -9 $PPID`+"\n")
	port := l.startServer(t, "cut", []string{"mine"}, "HostKey "+l.path("host"), "ForceCommand . "+script)
	c := mustConnect(t, l, port, t.TempDir())
	_, err := c.Start(t.Context(), fakeProgram(t, filepath.Join(t.TempDir(), "lib")))
	if err == nil || !strings.Contains(err.Error(), "the connection ended while the machine ran a command") {
		t.Errorf("error %v", fmt.Sprint(err))
	}
}
