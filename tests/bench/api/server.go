package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/config"
)

// servers are an etcd and an API server in processes of their own, over mutual TLS on loopback,
// as on a control-plane machine: fsync on, Node and RBAC authorization, every default plugin.
type servers struct {
	dir, bin  string
	etcd, api *exec.Cmd
	etcdURL   string
	port      int
	ca        *x509.CertPool
	client    tls.Certificate // towards etcd, as the API server has it
}

func (s *servers) path(name string) string { return filepath.Join(s.dir, name) }

// start writes certificates, starts etcd, and leaves the API server to its caller.
func start(ctx context.Context, bin, dir string) (*servers, error) {
	s := &servers{dir: dir, bin: bin}
	var err error
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	if err := s.writeFiles(); err != nil {
		return nil, err
	}
	return s, s.startEtcd(ctx)
}

func (s *servers) writeFiles() error {
	now := time.Now()
	ca, err := certs.NewCA(certs.CommonNames[certs.ClusterCA], 0, now)
	if err != nil {
		return err
	}
	etcdCA, err := certs.NewCA(certs.CommonNames[certs.EtcdCA], 0, now)
	if err != nil {
		return err
	}
	private, public, err := certs.NewKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": ca.Cert, "etcd-ca.crt": etcdCA.Cert, "sa.key": private, "sa.pub": public}
	for name, leaf := range map[string]struct {
		ca      certs.Pair
		request certs.Request
	}{
		"apiserver":             {ca, certs.APIServer("cluster.local", "10.96.0.1", nil)},
		"apiserver-etcd-client": {etcdCA, certs.APIServerEtcdClient()},
		"etcd":                  {etcdCA, certs.EtcdPeer("bench", nil)},
		"admin":                 {ca, certs.SuperAdmin()},
	} {
		pair, err := certs.Issue(leaf.ca, leaf.request, now)
		if err != nil {
			return err
		}
		files[name+".crt"], files[name+".key"] = pair.Cert, pair.Key
	}
	if files["kubeconfig"], err = certs.Kubeconfig("bench", s.url(), "admin", ca.Cert, certs.Pair{Cert: files["admin.crt"], Key: files["admin.key"]}); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(s.path(name), text, 0o600); err != nil {
			return err
		}
	}
	s.ca = x509.NewCertPool()
	s.ca.AppendCertsFromPEM(etcdCA.Cert)
	s.client, err = tls.X509KeyPair(files["apiserver-etcd-client.crt"], files["apiserver-etcd-client.key"])
	return err
}

func (s *servers) url() string { return fmt.Sprintf("https://127.0.0.1:%d", s.port) }

func (s *servers) startEtcd(ctx context.Context) error {
	client, err := freePort()
	if err != nil {
		return err
	}
	peer, err := freePort()
	if err != nil {
		return err
	}
	peerURL := fmt.Sprintf("https://127.0.0.1:%d", peer)
	s.etcdURL = fmt.Sprintf("https://127.0.0.1:%d", client)
	cfg := config.Etcd{
		Name: "bench", DataDir: s.path("etcd"), QuotaBackendBytes: 8 << 30,
		ListenClientURLs: []string{s.etcdURL}, AdvertiseClientURLs: []string{s.etcdURL},
		ListenPeerURLs: []string{peerURL}, InitialAdvertisePeerURLs: []string{peerURL}, InitialCluster: "bench=" + peerURL, InitialClusterState: "new",
		CertFile: s.path("etcd.crt"), KeyFile: s.path("etcd.key"), TrustedCAFile: s.path("etcd-ca.crt"), ClientCertAuth: true,
		PeerCertFile: s.path("etcd.crt"), PeerKeyFile: s.path("etcd.key"), PeerTrustedCAFile: s.path("etcd-ca.crt"), PeerClientCertAuth: true,
	}
	s.etcd, err = s.run(ctx, "etcd", config.Args(&cfg, &config.Etcd{})...)
	return err
}

// apiCommand is the command line of the API server.
func (s *servers) apiCommand() []string {
	cfg := config.DefaultAPIServer()
	cfg.BindAddress, cfg.AdvertiseAddress, cfg.SecurePort = "127.0.0.1", "127.0.0.1", s.port
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile, cfg.ClientCAFile = s.path("apiserver.crt"), s.path("apiserver.key"), s.path("ca.crt")
	cfg.EtcdServers = []string{s.etcdURL}
	cfg.EtcdCAFile, cfg.EtcdCertFile, cfg.EtcdKeyFile = s.path("etcd-ca.crt"), s.path("apiserver-etcd-client.crt"), s.path("apiserver-etcd-client.key")
	cfg.ServiceAccountKeyFiles, cfg.ServiceAccountSigningKeyFile = []string{s.path("sa.pub")}, s.path("sa.key")
	defaults := config.DefaultAPIServer()
	return append([]string{filepath.Join(s.bin, "clusterctl"), "daemon", "kube-apiserver"}, config.Args(&cfg, &defaults)...)
}

// startAPI starts the API server and waits until it is ready.
func (s *servers) startAPI(ctx context.Context) error {
	command := s.apiCommand()
	var err error
	if s.api, err = s.run(ctx, command[0], command[1:]...); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(s.path("admin.crt"), s.path("admin.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(s.path("ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}}
	defer client.CloseIdleConnections()
	return until(ctx, time.Minute, func() error {
		answer, err := client.Get(s.url() + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}

// stopAPI ends the API server.
func (s *servers) stopAPI() error {
	if s.api == nil {
		return nil
	}
	defer func() { s.api = nil }()
	return stop(s.api)
}

func (s *servers) close() error {
	err := s.stopAPI()
	if s.etcd != nil {
		err = errors.Join(err, stop(s.etcd))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func stop(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_ = cmd.Wait() // that it was ended is not news
	return nil
}

func (s *servers) run(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	if !filepath.IsAbs(program) {
		program = filepath.Join(s.bin, program)
	}
	log, err := os.OpenFile(s.path(filepath.Base(program)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// ranges is how many range requests etcd has answered so far.
func (s *servers) ranges(ctx context.Context) (float64, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.ca, Certificates: []tls.Certificate{s.client}}}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.etcdURL+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	total, scanner := 0.0, bufio.NewScanner(answer.Body)
	for scanner.Scan() {
		line := scanner.Text()
		if strings.HasPrefix(line, "grpc_server_handled_total{") && strings.Contains(line, `grpc_method="Range"`) {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("etcd's metrics: %w", err)
			}
			total += n
		}
	}
	return total, scanner.Err()
}

// until repeats f until it succeeds.
func until(ctx context.Context, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
