// Command operator is an operator as users write them with controller-runtime, for the tests. It creates a Deployment
// for each Site. It converts between the two versions of Site, and its webhooks default and validate writes of Sites.
// It installs its definition and its webhooks by itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	v1 "clusterctl/tests/programs/operator/v1"
	v2 "clusterctl/tests/programs/operator/v2"
)

func main() {
	namespace := flag.String("namespace", "default", "where the operator runs")
	address := flag.String("url", "",
		"where the API server reaches the webhooks; empty means by the service named operator")
	health := flag.String("health", ":8081", "where to answer whether the operator is ready")
	flag.Parse() // controller-runtime defines the flag kubeconfig
	if err := runManager(ctrl.SetupSignalHandler(), *namespace, *address, *health); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runManager(ctx context.Context, namespace, address, health string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1.Add(scheme),
		v2.Add(scheme)); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	at, host, port := url.URL{}, "", 9443
	if address != "" {
		to, err := url.Parse(address)
		if err != nil {
			return fmt.Errorf("read -url: %w", err)
		}
		at, host = *to, to.Hostname()
		if port, err = strconv.Atoi(to.Port()); err != nil {
			return fmt.Errorf("read the port of -url: %w", err)
		}
	}
	folder, err := os.MkdirTemp("", "operator-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // an error does not matter, because the process ends
	pair, err := servingCertificate(ctx, direct, namespace)
	if err != nil {
		return err
	}
	for name, key := range map[string]string{"tls.crt": "tls.crt", "tls.key": "tls.key"} {
		if err := os.WriteFile(filepath.Join(folder, name), pair[key], 0o600); err != nil {
			return err
		}
	}
	if err := installDefinition(ctx, direct, namespace, at, pair["ca.crt"]); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: health, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "operator.example.com", LeaderElectionNamespace: namespace,
		LeaderElectionReleaseOnCancel: true,
		WebhookServer:                 webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: folder}),
	})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	if err := setUpController(mgr); err != nil {
		return err
	}
	log.Info("the operator starts", "webhooks", net.JoinHostPort(host, strconv.Itoa(port)))
	return mgr.Start(ctx)
}
