// Command etcd is a member of the cluster's store: the embedded etcd server with the flags of daemons/config.Etcd. It
// is a separate program because the server would double the size of every other program. It also maintains members, and
// takes and restores snapshots, because that needs the server's code.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	requested, err := runCommand(ctx, os.Args[1:], os.Stdout)
	if !requested {
		err = serveMember(ctx, os.Args[1:], log)
	}
	stop()
	switch {
	case err != nil && requested:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case err != nil:
		log.Error("etcd ends", "err", err)
		os.Exit(1)
	}
}

// startTimeout is how long a member may take to reach the others. It is long, because the others may start much later.
const startTimeout = 10 * time.Minute

func serveMember(ctx context.Context, args []string, log *slog.Logger) error {
	var cfg config.Etcd
	flags := config.Flags("etcd", &cfg)
	show := flags.Bool("version", false, "say which etcd this is, and end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("start etcd: %q is not a flag, and there are no other arguments", flags.Arg(0))
	}
	if *show {
		_, err := fmt.Println("etcd Version:", version.Version)
		return err
	}
	var beside sync.WaitGroup
	besideCtx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		beside.Wait()
	}()
	// The store produces many times its size in garbage. It is collected as often as in other programs.
	beside.Go(func() { run.ManageMemory(besideCtx, &run.IdleTasks{MaxGrowthPercent: 100}) })
	server, err := startServer(cfg, log)
	if err != nil {
		return err
	}
	defer stopServer(server, log)

	health := &run.Health{}
	ready := make(chan struct{})
	health.AddReady("member", func() error {
		select {
		case <-ready:
			return nil
		default:
			return fmt.Errorf("not yet part of a quorum")
		}
	})
	beside.Go(func() { run.Notify(besideCtx, health) })
	wait := time.NewTimer(startTimeout)
	defer wait.Stop()
	joined := server.Server.ReadyNotify()
	for {
		select {
		case <-joined:
			log.Info("etcd is ready", "name", cfg.Name, "data", cfg.DataDir)
			close(ready)
			joined = nil
			wait.Stop()
		case err := <-server.Err():
			return fmt.Errorf("serve: %w", err)
		case <-server.Server.StopNotify():
			return fmt.Errorf("the member was removed from the cluster")
		case <-wait.C:
			return fmt.Errorf("no quorum within %s", startTimeout)
		case <-ctx.Done():
			return nil
		}
	}
}

// startServer starts the server, which may not be ready yet.
func startServer(cfg config.Etcd, log *slog.Logger) (*embed.Etcd, error) {
	embedded, err := embedConfig(cfg)
	if err != nil {
		return nil, err
	}
	revoked, err := run.NewRevoked(cfg.ClientCRLFile, cfg.TrustedCAFile, log)
	if err != nil {
		return nil, err
	}
	embedded.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(revokedRequests(revoked)), grpc.ChainStreamInterceptor(revokedStreams(revoked)),
	}
	server, err := embed.StartEtcd(embedded)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	return server, nil
}

// stopServer stops the server. A member that was removed from the store ends at once: the others do not accept a
// transfer of leadership from it, and the attempt would take seconds.
func stopServer(server *embed.Etcd, log *slog.Logger) {
	if id := server.Server.MemberID(); server.Server.IsIDRemoved(uint64(id)) {
		log.Info("the store has removed this member", "member", id.String())
		return
	}
	if err := server.Server.TryTransferLeadershipOnShutdown(); err != nil {
		log.Warn("the leadership is not handed over", "err", err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		server.Close()
	}()
	select {
	case <-closed:
	case <-time.After(drainTimeout):
	}
}

// drainTimeout is how long requests in progress may take to complete. Watches never end by themselves, and the server
// would wait seven seconds for them. Everything that was acknowledged is on disk, so the process may exit.
const drainTimeout = 500 * time.Millisecond

// embedConfig converts the flags to the embedded server's configuration.
func embedConfig(cfg config.Etcd) (*embed.Config, error) {
	out := embed.NewConfig()
	out.Name, out.Dir = cfg.Name, cfg.DataDir
	out.LogLevel, out.LogOutputs = "warn", []string{"stderr"}
	for _, u := range []struct {
		texts []string
		into  *[]url.URL
	}{
		{cfg.ListenClientURLs, &out.ListenClientUrls}, {cfg.AdvertiseClientURLs, &out.AdvertiseClientUrls},
		{cfg.ListenPeerURLs, &out.ListenPeerUrls}, {cfg.InitialAdvertisePeerURLs, &out.AdvertisePeerUrls},
		{cfg.ListenMetricsURLs, &out.ListenMetricsUrls},
	} {
		if len(u.texts) == 0 {
			continue
		}
		*u.into = nil
		for _, text := range u.texts {
			parsed, err := url.Parse(text)
			if err != nil {
				return nil, fmt.Errorf("read URL %q: %w", text, err)
			}
			*u.into = append(*u.into, *parsed)
		}
	}
	if out.InitialCluster = cfg.InitialCluster; cfg.InitialClusterFile != "" {
		text, err := os.ReadFile(cfg.InitialClusterFile)
		switch {
		case err == nil:
			out.InitialCluster = strings.TrimSpace(string(text))
		case !errors.Is(err, fs.ErrNotExist): // the file exists only before the first start
			return nil, fmt.Errorf("read the members to begin beside: %w", err)
		}
	}
	if out.InitialCluster == "" {
		out.InitialCluster = out.InitialClusterFromName(out.Name)
	}
	if cfg.InitialClusterState != "" {
		out.ClusterState = cfg.InitialClusterState
	}
	if cfg.InitialClusterToken != "" {
		out.InitialClusterToken = cfg.InitialClusterToken
	}
	out.ClientTLSInfo = transport.TLSInfo{
		CertFile:       cfg.CertFile,
		KeyFile:        cfg.KeyFile,
		TrustedCAFile:  cfg.TrustedCAFile,
		ClientCertAuth: cfg.ClientCertAuth,
		CRLFile:        cfg.ClientCRLFile,
		AllowedCNs:     cfg.ClientCertAllowedCNs,
	}
	out.PeerTLSInfo = transport.TLSInfo{
		CertFile:         cfg.PeerCertFile,
		KeyFile:          cfg.PeerKeyFile,
		TrustedCAFile:    cfg.PeerTrustedCAFile,
		ClientCertAuth:   cfg.PeerClientCertAuth,
		CRLFile:          cfg.PeerCRLFile,
		AllowedHostnames: cfg.PeerCertAllowedHostnames,
	}
	// With the gRPC gateway, etcd would connect to itself as a client that presents the server's certificate.
	out.EnableGRPCGateway = false
	out.QuotaBackendBytes = int64(cfg.QuotaBackendBytes)
	if out.QuotaBackendBytes == 0 {
		out.QuotaBackendBytes = 8 << 30
	}
	if cfg.HeartbeatInterval > 0 {
		out.TickMs = uint(cfg.HeartbeatInterval)
	}
	if cfg.ElectionTimeout > 0 {
		out.ElectionMs = uint(cfg.ElectionTimeout)
	}
	// The API server compacts according to its watch caches. This is only a fallback.
	out.AutoCompactionMode, out.AutoCompactionRetention = "periodic", "30m"
	out.UnsafeNoFsync = cfg.UnsafeNoFsync
	return out, out.Validate()
}
