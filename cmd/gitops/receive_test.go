package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// The active controller serves webhooks at both ports, and is the endpoint of the service as long as it does.
func TestTheActiveControllerIsTheEndpointForWebhooks(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(startServer(t))
	cfg := config.DefaultGitOps()
	for _, port := range []*int{&cfg.ReceiverPort, &cfg.ReceiverHTTPPort} {
		free, err := run.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		*port = free
	}
	cfg.NodeName, cfg.NodeIP = "control", []string{"10.0.0.1", "fd00::1"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	go func() { ended <- receive(ctx, cfg, handler, client, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	web := &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // #nosec: it is self-signed
	for _, url := range []string{fmt.Sprintf("https://127.0.0.1:%d/", cfg.ReceiverPort),
		fmt.Sprintf("http://127.0.0.1:%d/", cfg.ReceiverHTTPPort)} {
		until(t, url+" is served", func() error {
			answer, err := web.Post(url, "application/json", strings.NewReader("{}"))
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusTeapot {
				return errors.New(answer.Status)
			}
			return nil
		})
	}
	slices := client.DiscoveryV1().EndpointSlices("kube-system")
	for name, address := range map[string]string{"gitops-receiver": "10.0.0.1", "gitops-receiver-ipv6": "fd00::1"} {
		until(t, name+" is published", func() error {
			s, err := slices.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s.Labels["kubernetes.io/service-name"] != "gitops-receiver" || len(s.Endpoints) != 1 ||
				s.Endpoints[0].Addresses[0] != address || int(*s.Ports[0].Port) != cfg.ReceiverPort {
				return fmt.Errorf("the endpoint slice is %v", s)
			}
			return nil
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := slices.Get(t.Context(), "gitops-receiver", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the end, the endpoint slice is there: %v", err)
	}
}
