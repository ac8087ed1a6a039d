package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clusterctl/daemons/ingress/proxy"
	"clusterctl/daemons/ingress/route"
)

// proxied is a proxy that is measured. It runs in its own processes.
type proxied struct {
	dir, title string
	ports      [2]int
	cmd        *exec.Cmd
}

type measuredProxy interface {
	label() string
	plain() string
	secure() string
	start(endpoints []string) error
	set(endpoints []string) error
	stop()
	cpu() time.Duration
}

func newProxied(dir, title string, first int) proxied {
	return proxied{dir: dir, title: title, ports: [2]int{first, first + 1}}
}

func (p *proxied) label() string  { return p.title }
func (p *proxied) plain() string  { return "127.0.0.1:" + strconv.Itoa(p.ports[0]) }
func (p *proxied) secure() string { return "127.0.0.1:" + strconv.Itoa(p.ports[1]) }

func (p *proxied) run(name string, args ...string) error {
	p.cmd = exec.Command(name, args...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return p.cmd.Start()
}

// stop kills the proxy with all its processes. Processes that are still ending their connections could receive
// connections for the next proxy.
func (p *proxied) stop() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// cpu returns the CPU time of the process and its children, including children that have ended.
func (p *proxied) cpu() (sum time.Duration) {
	const tick = 10 * time.Millisecond
	text, err := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(p.cmd.Process.Pid)).Output()
	pids := []string{strconv.Itoa(p.cmd.Process.Pid)}
	if err == nil {
		pids = append(pids, strings.Fields(string(text))...)
	}
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		last := 13 // utime, stime; for the first process also cutime and cstime
		if pid == pids[0] {
			last = 15
		}
		for _, f := range fields[11:last] {
			n, _ := strconv.Atoi(f)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// kubeIngress is kube-ingress' engine, in another process of this program.
type kubeIngress struct {
	proxied
	in *bufio.Writer
}

func newKubeIngress(dir string) measuredProxy {
	return &kubeIngress{proxied: newProxied(dir, "kube-ingress", 18080)}
}

func (o *kubeIngress) start(endpoints []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.cmd = exec.Command(self, "-serve", o.dir, o.plain(), o.secure())
	o.cmd.Stderr = os.Stderr
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	pipe, err := o.cmd.StdinPipe()
	if err != nil {
		return err
	}
	o.in = bufio.NewWriter(pipe)
	if err := o.cmd.Start(); err != nil {
		return err
	}
	return o.set(endpoints)
}

func (o *kubeIngress) set(endpoints []string) error {
	fmt.Fprintln(o.in, strings.Join(endpoints, " "))
	return o.in.Flush()
}

// serveKubeIngress runs the engine with one rule. It reads the rule's endpoints from standard input, one list a line.
func serveKubeIngress(args []string) error {
	dir, at := args[0], args[1:]
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return err
	}
	e := proxy.New(proxy.Config{
		Log: slog.New(
			slog.DiscardHandler,
		), DefaultCert: &cert, MaxHead: 32 << 10, HeadTime: 15 * time.Second, Idle: 75 * time.Second,
		UpstreamIdle: time.Minute,
		MaxIdle:      320,
		HTTPSPort:    443, MinTLS: tls.VersionTLS12, MaxStreams: 250, HandshakeTime: 15 * time.Second,
	})
	key := route.BackendKey{Service: route.Key{Namespace: "default", Name: "web"}, Port: "80", Protocol: route.HTTP}
	backend := &route.Backend{Key: key, Targets: e.Targets(key)}
	rule := &route.Rule{
		Path: "/shop", Policy: &route.Policy{Connect: 5 * time.Second, Read: time.Minute, Send: time.Minute,
			Protocol: route.HTTP},
		Backends: []route.Weighted{
			{Backend: backend, Weight: 1},
		}, Counter: e.Counter(route.Source{Namespace: "default", Name: "web", Service: "web"}),
	}
	l := (&route.Listener{}).WithHosts(map[string][]route.PathRule{hostName: {{Path: "/shop", Rule: rule}}})
	for i, address := range at {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		entry := e.Open(i == 1, 80)
		entry.SetTable((&route.Table{}).WithListeners([]*route.Listener{l}))
		go func() { _ = e.Serve(ln, entry) }()
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var list []netip.AddrPort
		for _, text := range strings.Fields(lines.Text()) {
			list = append(list, netip.MustParseAddrPort(text))
		}
		backend.Targets.Update(list)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	e.Close(ctx)
	return nil
}

type nginx struct{ proxied }

func newNginx(dir string) measuredProxy { return &nginx{newProxied(dir, "nginx", 18082)} }

func (n *nginx) write(endpoints []string) error {
	return os.WriteFile(
		filepath.Join(n.dir, "nginx.conf"),
		[]byte(
			fmt.Sprintf(
				`daemon off; pid %[1]s/nginx.pid; error_log %[1]s/nginx.log; worker_processes auto; worker_rlimit_nofile 65536;
events { worker_connections 8192; }
http {
  access_log off; keepalive_requests 1000000;
  upstream web { server %[2]s; keepalive 320; keepalive_requests 1000000; }
  server {
    listen %[3]s; listen %[4]s ssl; server_name `+hostName+`; ssl_certificate %[1]s/cert.pem; ssl_certificate_key %[1]s/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
    location /shop {
      proxy_pass http://web; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-Proto $scheme;
    }
  }
}
`,
				n.dir,
				strings.Join(endpoints, "; server "),
				n.plain(),
				n.secure(),
			),
		),
		0o644,
	)
}

func (n *nginx) start(endpoints []string) error {
	if err := n.write(endpoints); err != nil {
		return err
	}
	return n.run("nginx", "-c", filepath.Join(n.dir, "nginx.conf"))
}

func (n *nginx) set(endpoints []string) error {
	if err := n.write(endpoints); err != nil {
		return err
	}
	return n.cmd.Process.Signal(syscall.SIGHUP)
}

type haproxy struct{ proxied }

func newHaproxy(dir string) measuredProxy { return &haproxy{newProxied(dir, "haproxy", 18084)} }

func (h *haproxy) write(endpoints []string) error {
	servers := ""
	for i, e := range endpoints {
		servers += fmt.Sprintf("  server s%d %s\n", i, e)
	}
	return os.WriteFile(filepath.Join(h.dir, "haproxy.cfg"), []byte(fmt.Sprintf(`global
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 75s
  timeout server 60s
  option forwardfor
  http-reuse always
frontend web
  bind %[2]s
  bind %[3]s ssl crt %[1]s/both.pem alpn http/1.1
  use_backend web if { hdr(host) -i `+hostName+` } { path_beg /shop }
backend web
  balance roundrobin
%[4]s`, h.dir, h.plain(), h.secure(), servers)), 0o644)
}

func (h *haproxy) start(endpoints []string) error {
	if err := h.write(endpoints); err != nil {
		return err
	}
	return h.run("haproxy", "-W", "-db", "-q", "-f", filepath.Join(h.dir, "haproxy.cfg"))
}

func (h *haproxy) set(endpoints []string) error {
	if err := h.write(endpoints); err != nil {
		return err
	}
	return h.cmd.Process.Signal(syscall.SIGUSR2)
}
