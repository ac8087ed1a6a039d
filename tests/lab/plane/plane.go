// Package plane runs a control plane as processes of this machine: etcd, API servers, scheduler and controllers. They
// use mutual TLS on loopback with their own certificates, and the settings of control-plane machines: fsync, Node and
// RBAC authorization, and every default plugin. The caller decides what to do with them.
package plane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// Options are the options of New.
type Options struct {
	Bin     string // directory of clusterctl and etcd
	Dir     string // directory for the processes' files; Close removes it
	Members int    // number of etcd members; 0 means 1
	Servers int    // number of API servers; 0 means 1

	Profiling bool // serve profiles from all processes except etcd

	// ControllerSettings changes the controllers' default settings, unless it is nil.
	ControllerSettings func(*config.ControllerManager)
}

// Plane is a control plane. New starts etcd, and the caller starts the other processes.
type Plane struct {
	Options
	Etcd []*Process
	API  []*Process

	Scheduler   *Process // the caller starts it
	Controllers *Process // the caller starts it

	ports             []int            // ports of the API servers
	urls              []string         // URLs of the etcd members
	health            map[*Process]int // ports of scheduler and controllers
	ca                *x509.CertPool
	clientCertificate tls.Certificate // client certificate for etcd, as the API servers have it
	admin             *http.Client
}

// New writes certificates and starts etcd. The caller starts the API servers.
func New(ctx context.Context, o Options) (*Plane, error) {
	p := &Plane{Options: o}
	p.Members, p.Servers = max(p.Members, 1), max(p.Servers, 1)
	for range p.Servers {
		port, err := run.FreePort()
		if err != nil {
			return nil, err
		}
		p.ports = append(p.ports, port)
	}
	if err := p.writeFiles(); err != nil {
		return nil, err
	}
	if err := p.prepareProcesses(); err != nil {
		return nil, err
	}
	for _, member := range p.Etcd {
		if err := member.Start(ctx); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

func (p *Plane) path(name string) string { return filepath.Join(p.Dir, name) }

// Kubeconfig returns the path of the administrator's kubeconfig, which uses the first API server.
func (p *Plane) Kubeconfig() string { return p.path("kubeconfig") }

// Addresses returns the hosts and ports of the API servers.
func (p *Plane) Addresses() []string {
	var list []string
	for _, port := range p.ports {
		list = append(list, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return list
}

func (p *Plane) writeFiles() error {
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
	files := map[string][]byte{
		"ca.crt":      ca.Cert,
		"ca.key":      ca.Key,
		"etcd-ca.crt": etcdCA.Cert,
		"sa.key":      private,
		"sa.pub":      public,
	}
	pairs := map[string]certs.Pair{}
	for name, leaf := range map[string]struct {
		ca      certs.Pair
		request certs.Request
	}{
		"apiserver":             {ca, certs.APIServer("cluster.local", "10.96.0.1", nil)},
		"apiserver-etcd-client": {etcdCA, certs.APIServerEtcdClient()},
		"etcd":                  {etcdCA, certs.EtcdPeer("plane", nil)},
		"admin":                 {ca, certs.SuperAdmin()},
		"scheduler":             {ca, certs.Daemon("kube-scheduler")},
		"controllers":           {ca, certs.Daemon("kube-controller-manager")},
		"daemon":                {ca, certs.DaemonServer("plane", nil)},
	} {
		pair, err := certs.Issue(leaf.ca, leaf.request, now)
		if err != nil {
			return err
		}
		pairs[name], files[name+".crt"], files[name+".key"] = pair, pair.Cert, pair.Key
	}
	for user, file := range map[string]string{"admin": "kubeconfig", "scheduler": "scheduler.conf",
		"controllers": "controllers.conf"} {
		if files[file], err = certs.Kubeconfig("plane", "https://"+p.Addresses()[0], user, ca.Cert,
			pairs[user]); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(p.path(name), text, 0o600); err != nil {
			return err
		}
	}
	p.ca = x509.NewCertPool()
	p.ca.AppendCertsFromPEM(etcdCA.Cert)
	if p.clientCertificate, err = tls.X509KeyPair(pairs["apiserver-etcd-client"].Cert,
		pairs["apiserver-etcd-client"].Key); err != nil {
		return err
	}
	admin, err := tls.X509KeyPair(pairs["admin"].Cert, pairs["admin"].Key)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Cert)
	p.admin = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{admin}}}}
	return nil
}

// prepareProcesses prepares the processes without starting them.
func (p *Plane) prepareProcesses() error {
	var peers, initial []string
	for i := range p.Members {
		client, err := run.FreePort()
		if err != nil {
			return err
		}
		peer, err := run.FreePort()
		if err != nil {
			return err
		}
		p.urls = append(p.urls, fmt.Sprintf("https://127.0.0.1:%d", client))
		peers = append(peers, fmt.Sprintf("https://127.0.0.1:%d", peer))
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i := range p.Members {
		cfg := config.Etcd{
			Name: fmt.Sprintf("m%d", i), DataDir: p.path(fmt.Sprintf("etcd-%d", i)), QuotaBackendBytes: 8 << 30,
			ListenClientURLs: p.urls[i : i+1], AdvertiseClientURLs: p.urls[i : i+1],
			ListenPeerURLs: peers[i : i+1], InitialAdvertisePeerURLs: peers[i : i+1],
			InitialCluster: strings.Join(initial, ","), InitialClusterState: "new",
			CertFile: p.path(
				"etcd.crt"), KeyFile: p.path("etcd.key"), TrustedCAFile: p.path("etcd-ca.crt"), ClientCertAuth: true,
			PeerCertFile: p.path(
				"etcd.crt",
			), PeerKeyFile: p.path("etcd.key"), PeerTrustedCAFile: p.path("etcd-ca.crt"), PeerClientCertAuth: true,
		}
		p.Etcd = append(p.Etcd, &Process{log: p.path(fmt.Sprintf("etcd-%d.log", i)),
			command: append([]string{filepath.Join(p.Bin, "etcd")}, config.Args(&cfg, &config.Etcd{})...)})
	}
	for i := range p.Servers {
		cfg, defaults := config.DefaultAPIServer(), config.DefaultAPIServer()
		// An endpoint of a service cannot be a loopback address. These addresses are reserved for examples (RFC 5737),
		// and no client connects to them.
		cfg.BindAddress, cfg.AdvertiseAddress, cfg.SecurePort = "127.0.0.1", fmt.Sprintf("192.0.2.%d", i+1), p.ports[i]
		cfg.TLSCertFile, cfg.TLSPrivateKeyFile, cfg.ClientCAFile = p.path("apiserver.crt"), p.path(
			"apiserver.key"), p.path("ca.crt")
		cfg.Profiling = p.Profiling
		own := i % p.Members // the first server in the list, as on a machine that runs both
		cfg.EtcdServers = append(append([]string{}, p.urls[own:]...), p.urls[:own]...)
		cfg.EtcdCAFile, cfg.EtcdCertFile, cfg.EtcdKeyFile = p.path("etcd-ca.crt"), p.path(
			"apiserver-etcd-client.crt"), p.path("apiserver-etcd-client.key")
		cfg.ServiceAccountKeyFiles, cfg.ServiceAccountSigningKeyFile = []string{p.path("sa.pub")}, p.path("sa.key")
		p.API = append(p.API, &Process{log: p.path(fmt.Sprintf("apiserver-%d.log", i)),
			command: append([]string{filepath.Join(p.Bin, "clusterctl"), "daemon", "kube-apiserver"},
				config.Args(&cfg, &defaults)...)})
	}
	return p.prepareDaemons()
}

// Ready waits until an API server is ready.
func (p *Plane) Ready(ctx context.Context, server int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.get(ctx, server, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("API server %d is not ready: %w", server, err)
		}
	}
}

func (p *Plane) get(ctx context.Context, server int, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.Addresses()[server]+path, nil)
	if err != nil {
		return err
	}
	answer, err := p.admin.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// Close ends all processes and removes their files.
func (p *Plane) Close() error {
	var errs []error
	for _, process := range slices.Concat([]*Process{p.Scheduler, p.Controllers}, p.API, p.Etcd) {
		errs = append(errs, process.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(p.Dir))...)
}
