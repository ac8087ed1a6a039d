package ssh

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// proxyConn is a connection over a ProxyCommand's standard input and output.
type proxyConn struct {
	net.Conn
	command *exec.Cmd
	stderr  *limitedBuffer
	once    sync.Once
}

// startProxy runs a ProxyCommand as OpenSSH does: with the user's shell, which exec replaces.
func startProxy(command, shell string) (net.Conn, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "proxy command"), os.NewFile(uintptr(pair[1]), "proxy command")
	defer func() { _ = ours.Close(); _ = theirs.Close() }()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}
	p := &proxyConn{Conn: conn, command: exec.Command(shell, "-c", "exec "+command), stderr: &limitedBuffer{}}
	p.command.Stdin, p.command.Stdout, p.command.Stderr = theirs, theirs, p.stderr
	p.command.WaitDelay = time.Second // child processes may keep its standard error open
	if err := p.command.Start(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

// Close kills the command.
func (p *proxyConn) Close() error {
	err := p.Conn.Close()
	p.once.Do(func() {
		_ = p.command.Process.Kill()
		_ = p.command.Wait() // it always fails after the kill
	})
	return err
}
