package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"clusterctl/hcl/config"
)

// Options apply to all machines of a run.
type Options struct {
	AcceptNewHostKeys bool
	Timeout           time.Duration // for the login to each hop; zero means ConnectTimeout of ssh_config, or 15 seconds
	Files             Files
	Getenv            func(string) string
	// Passphrase asks for a key's passphrase and tries it. If it is nil, only keys without a passphrase and those of
	// ssh-agent are used.
	Passphrase func(path string, try func([]byte) error) error
}

const (
	defaultTimeout = 15 * time.Second
	agentTimeout   = 5 * time.Second
)

// maxHops limits the number of jump hosts. More of them indicate a cycle in the configuration.
const maxHops = 16

// Errors that the user can act on.
var (
	ErrUnreachable = errors.New("unreachable")
	ErrLogin       = errors.New("log in")
	ErrRoot        = errors.New("become root")
)

// Client is an SSH connection to a machine.
type Client struct {
	*ssh.Client
	Target         Target
	WasProgramSent bool // the program was sent to the machine because the machine did not have it
	machine        config.Machine
	options        Options
	getenv         func(string) string
	passphrase     func(string, func([]byte) error) error
	hops           []*ssh.Client
	agents         []net.Conn
	stop           chan struct{}
	once           sync.Once
}

// Dial logs in to a machine, through jump hosts and proxies if configured.
func Dial(ctx context.Context, m config.Machine, o Options) (*Client, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	target, err := Resolve(m, o.Files, o.Getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLogin, err)
	}
	c := &Client{
		Target:     target,
		machine:    m,
		options:    o,
		getenv:     o.Getenv,
		passphrase: o.Passphrase,
		stop:       make(chan struct{}),
	}
	password := ""
	if m.SSH.PasswordEnv != "" {
		if password = o.Getenv(m.SSH.PasswordEnv); password == "" {
			return nil, fmt.Errorf("%w: the environment variable %s, named by password_env, is empty", ErrLogin,
				m.SSH.PasswordEnv)
		}
	}
	c.Client, err = c.login(ctx, target, password, 0)
	c.closeAgents()
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	go c.keepAlive()
	return c, nil
}

// Close closes the connection and those that it runs through.
func (c *Client) Close() error {
	var err error
	if c.Client != nil {
		c.once.Do(func() { close(c.stop) })
		err = c.Client.Close()
	}
	for _, hop := range slices.Backward(c.hops) {
		_ = hop.Close()
	}
	c.closeAgents()
	return err
}

func (c *Client) closeAgents() {
	for _, conn := range c.agents {
		_ = conn.Close()
	}
	c.agents = nil
}

// keepAlive closes a connection that does not answer for 30 seconds, or for the time that ServerAliveInterval and
// ServerAliveCountMax set. Closing it unblocks all pending operations.
func (c *Client) keepAlive() {
	interval, timeout := 10*time.Second, 30*time.Second
	if c.Target.AliveInterval > 0 {
		interval, timeout = c.Target.AliveInterval, c.Target.AliveInterval*time.Duration(max(c.Target.AliveCount, 1))
	}
	tick := time.NewTicker(interval)
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
		case <-time.After(timeout):
			_ = c.Client.Close()
			return
		}
	}
}

func (c *Client) timeout(t Target) time.Duration {
	switch {
	case c.options.Timeout > 0:
		return c.options.Timeout
	case t.ConnectTimeout > 0:
		return t.ConnectTimeout
	}
	return defaultTimeout
}

// connect connects to a target's sshd: directly, through its ProxyCommand, or through the last of its jump hosts, which
// is reached through the others.
func (c *Client) connect(ctx context.Context, t Target, depth int) (net.Conn, error) {
	if depth >= maxHops {
		return nil, fmt.Errorf("%w: more than %d jump hosts: does the ProxyJump in %s lead through itself?",
			ErrUnreachable, maxHops, t.routePosition)
	}
	address := net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	switch {
	case t.ProxyCommand != "":
		conn, err := startProxy(t.ProxyCommand, identity{getenv: c.getenv}.shell())
		if err != nil {
			return nil, fmt.Errorf("%w: run the ProxyCommand of %s: %w", ErrUnreachable, t.routePosition, err)
		}
		return conn, nil
	case len(t.Jumps) > 0:
		hop, err := jumpHost(t.Jumps)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, t.routePosition, err)
		}
		through, err := Resolve(hop, c.options.Files, c.getenv)
		if err != nil {
			return nil, fmt.Errorf("%w: go through %s: %w", ErrUnreachable, hop.SSH.Host, err)
		}
		client, err := c.login(ctx, through, "", depth+1)
		if err != nil {
			return nil, fmt.Errorf("%w: go through %s: %w", ErrUnreachable, hop.SSH.Host, err)
		}
		c.hops = append(c.hops, client)
		ctx, cancel := context.WithTimeout(ctx, c.timeout(t))
		defer cancel()
		conn, err := client.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("%w: %s does not get to %s: %w", ErrUnreachable, hop.SSH.Host, address, err)
		}
		return conn, nil
	}
	dialer := net.Dialer{KeepAlive: 15 * time.Second, Timeout: c.timeout(t)}
	if t.BindAddress != "" {
		ip := net.ParseIP(t.BindAddress)
		if ip == nil {
			return nil, fmt.Errorf("%w: BindAddress %q is not an IP address", ErrUnreachable, t.BindAddress)
		}
		dialer.LocalAddr = &net.TCPAddr{IP: ip}
	}
	conn, err := dialer.DialContext(ctx, t.AddressFamily, address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w. Is the machine on, does sshd listen on port %d, and may you go there?",
			ErrUnreachable, err, t.Port)
	}
	return conn, nil
}

// jumpHost parses the last of a list of jump hosts. That host is reached through the others, or, if there are none, as
// its own configuration says.
func jumpHost(jumps []string) (config.Machine, error) {
	last := strings.TrimPrefix(jumps[len(jumps)-1], "ssh://")
	m := config.Machine{SSH: config.SSH{Host: last, Jump: strings.Join(jumps[:len(jumps)-1], ",")}}
	if i := strings.LastIndexByte(last, '@'); i >= 0 {
		m.SSH.User, m.SSH.Host = last[:i], last[i+1:]
	}
	if h, p, err := net.SplitHostPort(m.SSH.Host); err == nil {
		m.SSH.Host = h
		if m.SSH.Port, err = strconv.Atoi(p); err != nil || m.SSH.Port < 1 || m.SSH.Port > 65535 {
			return m, fmt.Errorf("%q of the jump host %q is not a port", p, last)
		}
	}
	m.SSH.Host = strings.Trim(m.SSH.Host, "[]")
	if m.SSH.Host == "" {
		return m, fmt.Errorf("%q names no jump host", strings.Join(jumps, ","))
	}
	return m, nil
}

// login connects and logs in. The time in which the user types a passphrase does not count towards the timeout.
func (c *Client) login(ctx context.Context, t Target, password string, depth int) (*ssh.Client, error) {
	address := net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	conn, err := c.connect(ctx, t, depth)
	if err != nil {
		return nil, err
	}
	var timedOut atomic.Bool
	clock := time.AfterFunc(c.timeout(t), func() {
		timedOut.Store(true)
		_ = conn.Close()
	})
	defer clock.Stop()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	client, err := c.handshake(conn, t, address, password, func(typing func() error) error {
		clock.Stop()
		defer clock.Reset(c.timeout(t))
		return typing()
	})
	switch {
	case err == nil:
		return client, nil
	case timedOut.Load():
		err = fmt.Errorf("%w: %s did not finish the login within %s", ErrUnreachable, address, c.timeout(t))
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: log in to %s: %w", ErrUnreachable, address, ctx.Err())
	}
	_ = conn.Close()
	if p, ok := conn.(*proxyConn); ok && !errors.Is(err, ErrHostKey) && !errors.Is(err, ErrLogin) {
		if text := p.stderr.String(); text != "" {
			return nil, fmt.Errorf("%w. The ProxyCommand of %s said: %s", err, t.routePosition, failureLine(text))
		}
	}
	return nil, err
}

func (c *Client) handshake(
	conn net.Conn,
	t Target,
	address, password string,
	wait func(func() error) error,
) (*ssh.Client, error) {
	if t.StrictHostKeys == "no" && !c.options.AcceptNewHostKeys {
		t.StrictHostKeys = "accept-new" // a changed key is refused in any case
	}
	hosts := hostKeyChecker{target: t, acceptsNew: c.options.AcceptNewHostKeys}
	settings := &ssh.ClientConfig{User: t.User}
	var err error
	if settings.HostKeyAlgorithms, err = hosts.hostKeyAlgorithms(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHostKey, err)
	}
	secure, insecure := ssh.SupportedAlgorithms(), ssh.InsecureAlgorithms()
	for _, list := range []struct {
		to           *[]string
		wanted       algorithms
		usual, risky []string
	}{
		{&settings.Ciphers, t.Ciphers, secure.Ciphers, insecure.Ciphers},
		{&settings.MACs, t.MACs, secure.MACs, insecure.MACs},
		{&settings.KeyExchanges, t.KeyExchanges, secure.KeyExchanges, insecure.KeyExchanges},
	} {
		if *list.to, err = list.wanted.selectFrom(list.usual, slices.Concat(list.usual, list.risky)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLogin, err)
		}
	}
	var tried string
	if settings.Auth, tried, err = c.authMethods(t, password, wait); err != nil {
		return nil, err
	}
	var hostKeyErr error
	settings.HostKeyCallback = func(_ string, _ net.Addr, k ssh.PublicKey) error {
		hostKeyErr = hosts.check(k)
		return hostKeyErr
	}
	sshConn, channels, requests, err := ssh.NewClientConn(conn, address, settings)
	var locked *lockedError
	switch {
	case errors.As(err, &locked):
		return nil, fmt.Errorf("%w as %s at %s: %w", ErrLogin, t.User, address, locked)
	case hostKeyErr != nil:
		return nil, hostKeyErr
	case err != nil && strings.Contains(err.Error(), "unable to authenticate"):
		return nil, fmt.Errorf("%w as %s at %s: it accepts none of %s. Name the key in the machine's ssh block (key = "+
			"\"…\"), or put one into the machine's authorized_keys", ErrLogin, t.User, address, tried)
	case err != nil:
		return nil, fmt.Errorf("%w: speak SSH with %s: %w", ErrUnreachable, address, err)
	}
	return ssh.NewClient(sshConn, channels, requests), nil
}
