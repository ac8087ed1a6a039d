package plane

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// EtcdAddress returns the host and port of the first member, which also serves its metrics there.
func (p *Plane) EtcdAddress() string { return strings.TrimPrefix(p.urls[0], "https://") }

// Metric returns the sum of a member's samples whose line begins with name and contains all the texts.
func (p *Plane) Metric(ctx context.Context, member int, name string, texts ...string) (float64, error) {
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: p.etcdTLS()},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.urls[member]+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	total, scanner := 0.0, bufio.NewScanner(answer.Body)
lines:
	for scanner.Scan() {
		line := scanner.Text()
		if !strings.HasPrefix(line, name) {
			continue
		}
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("etcd's metrics: %w", err)
		}
		total += n
	}
	return total, scanner.Err()
}

// Ranges returns how many range requests the first member has answered.
func (p *Plane) Ranges(ctx context.Context) (float64, error) {
	return p.Metric(ctx, 0, "grpc_server_handled_total{", `grpc_method="Range"`)
}

// Client returns a client of the members, for operations on etcd that bypass the API servers.
func (p *Plane) Client() (*clientv3.Client, error) {
	return clientv3.New(
		clientv3.Config{Endpoints: p.urls, TLS: p.etcdTLS(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()},
	)
}

func (p *Plane) etcdTLS() *tls.Config {
	return &tls.Config{RootCAs: p.ca, Certificates: []tls.Certificate{p.clientCertificate},
		MinVersion: tls.VersionTLS13}
}
