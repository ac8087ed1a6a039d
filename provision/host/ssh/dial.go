package ssh

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"clusterctl/hcl/config"
)

// Options are a run's, for all machines.
type Options struct {
	AcceptNewHostKeys bool
	Timeout           time.Duration // of logging in; zero means 15 seconds
	Home              string        // the user's; empty means what the system says
	Getenv            func(string) string
}

// Errors that a person can do something about.
var (
	ErrUnreachable = errors.New("unreachable")
	ErrLogin       = errors.New("log in")
	ErrRoot        = errors.New("become root")
)

// Client is a login on a machine.
type Client struct {
	*ssh.Client
	Target  Target
	machine config.Machine
	getenv  func(string) string
	jump    *ssh.Client
	agent   net.Conn
	stop    chan struct{}
	once    sync.Once
}

// Dial logs in. The machine is tried for the whole timeout.
func Dial(ctx context.Context, m config.Machine, o Options) (*Client, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("find your home directory: %w", err)
		}
		o.Home = home
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	target, err := Resolve(m, o.Home)
	if err != nil {
		return nil, err
	}
	c := &Client{Target: target, machine: m, getenv: o.Getenv, stop: make(chan struct{})}
	dial := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	if target.Jump != "" {
		jump, err := c.dialJump(ctx, target.Jump, o)
		if err != nil {
			return nil, fmt.Errorf("%w: go through %s: %w", ErrUnreachable, target.Jump, err)
		}
		c.jump, dial = jump, jump.DialContext
	}
	password := ""
	if m.SSH.PasswordEnv != "" {
		if password = o.Getenv(m.SSH.PasswordEnv); password == "" {
			return nil, fmt.Errorf("%w: the environment variable %s, named by password_env, is empty", ErrLogin, m.SSH.PasswordEnv)
		}
	}
	c.Client, err = c.login(ctx, dial, target, password, o)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	go c.keepAlive()
	return c, nil
}

// Close ends the login and what it needed.
func (c *Client) Close() error {
	var err error
	if c.Client != nil {
		c.once.Do(func() { close(c.stop) })
		err = c.Client.Close()
	}
	if c.jump != nil {
		_ = c.jump.Close()
	}
	if c.agent != nil {
		_ = c.agent.Close()
	}
	return err
}

// keepAlive notices a machine that is gone: a connection that does not answer for
// half a minute is closed, which wakes whoever waits on it.
func (c *Client) keepAlive() {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		answered := make(chan error, 1)
		go func() {
			_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		select {
		case <-c.stop:
			return
		case err := <-answered:
			if err != nil {
				return
			}
		case <-time.After(30 * time.Second):
			_ = c.Client.Close()
			return
		}
	}
}

func (c *Client) dialJump(ctx context.Context, jump string, o Options) (*ssh.Client, error) {
	m := config.Machine{}
	if u, rest, ok := strings.Cut(jump, "@"); ok {
		m.SSH.User, jump = u, rest
	}
	m.SSH.Host = jump
	if h, p, err := net.SplitHostPort(jump); err == nil {
		m.SSH.Host = h
		if m.SSH.Port, err = strconv.Atoi(p); err != nil {
			return nil, fmt.Errorf("%q is not a port", p)
		}
	}
	target, err := Resolve(m, o.Home)
	if err != nil {
		return nil, err
	}
	return c.login(ctx, (&net.Dialer{}).DialContext, target, "", o)
}

func (c *Client) login(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), t Target, password string, o Options) (*ssh.Client, error) {
	address := net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w. Is the machine on, does sshd listen on port %d, and may you go there?", ErrUnreachable, err, t.Port)
	}
	hosts := known{files: t.KnownHosts, accept: o.AcceptNewHostKeys}
	methods, tried, err := c.methods(t, password)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	var hostKeyErr error
	sshConn, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: t.User, Auth: methods, HostKeyAlgorithms: hosts.algorithms(address),
		HostKeyCallback: func(h string, a net.Addr, k ssh.PublicKey) error {
			hostKeyErr = hosts.check(h, a, k)
			return hostKeyErr
		},
	})
	switch {
	case hostKeyErr != nil:
		_ = conn.Close()
		return nil, hostKeyErr
	case err != nil && strings.Contains(err.Error(), "unable to authenticate"):
		_ = conn.Close()
		return nil, fmt.Errorf("%w as %s at %s: it accepts none of %s. Name the key in the machine's ssh block (key = \"…\"), or put one into the machine's authorized_keys", ErrLogin, t.User, address, tried)
	case err != nil:
		_ = conn.Close()
		return nil, fmt.Errorf("%w: speak SSH with %s: %w", ErrUnreachable, address, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return ssh.NewClient(sshConn, channels, requests), nil
}

// methods returns the ways to log in and their description.
func (c *Client) methods(t Target, password string) ([]ssh.AuthMethod, string, error) {
	var signers []ssh.Signer
	var tried []string
	for _, path := range t.Keys {
		text, err := os.ReadFile(path)
		if err != nil {
			if t.Explicit {
				return nil, "", fmt.Errorf("%w: read the key: %w", ErrLogin, err)
			}
			continue
		}
		signer, err := ssh.ParsePrivateKey(text)
		var locked *ssh.PassphraseMissingError
		if errors.As(err, &locked) {
			tried = append(tried, path+" (needs its passphrase: add it to ssh-agent)")
			continue
		}
		if err != nil {
			if t.Explicit {
				return nil, "", fmt.Errorf("%w: read the key %s: %w", ErrLogin, path, err)
			}
			continue
		}
		tried = append(tried, filepath.Base(path))
		signers = append(signers, signer)
	}
	methods := []ssh.AuthMethod{}
	if socket := c.getenv("SSH_AUTH_SOCK"); socket != "" {
		if conn, err := net.Dial("unix", socket); err == nil {
			c.agent = conn
			if held, err := agent.NewClient(conn).Signers(); err == nil {
				signers = append(signers, held...)
				tried = append(tried, fmt.Sprintf("%d keys of ssh-agent", len(held)))
			}
		}
	}
	if len(signers) > 0 {
		methods = append(methods, ssh.PublicKeys(signers...))
	}
	if password != "" {
		tried = append(tried, "the password")
		methods = append(methods, ssh.Password(password), ssh.KeyboardInteractive(func(_, _ string, questions []string, _ []bool) ([]string, error) {
			answers := make([]string, len(questions))
			for i := range answers {
				answers[i] = password
			}
			return answers, nil
		}))
	}
	if len(tried) == 0 {
		tried = []string{"nothing: no key was found in ~/.ssh and no ssh-agent runs"}
	}
	return methods, strings.Join(tried, ", "), nil
}

func hashHost(salt []byte, host string) string {
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(host))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
