package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
)

// Proves S14.
func TestRunningServersAreEndpointsOfTheKubernetesService(t *testing.T) {
	s := stores["memory"](t)
	at := func(address string) func(*apiserver.Options) {
		return func(o *apiserver.Options) { o.Addresses.AdvertiseAddress, o.Addresses.AdvertisePort = address, 6443 }
	}
	client := kubernetes.NewForConfigOrDie(startConfig(t, s, at("10.0.0.1")))
	second, err := apiserver.New(apiserver.Options{
		Storage:   apiserver.OpenStorage(s, "", kinds.All(), slog.New(slog.DiscardHandler)),
		Env:       run.NewEnv(slog.New(slog.DiscardHandler)),
		Addresses: apiserver.Addresses{AdvertiseAddress: "10.0.0.2", AdvertisePort: 6443},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(timeoutContext(t))
	done := make(chan error, 1)
	go func() { done <- second.Run(ctx) }()
	endpoints := func(want ...string) func() error {
		return func() error {
			slice, err := client.DiscoveryV1().
				EndpointSlices("default").
				Get(timeoutContext(t), "kubernetes", metav1.GetOptions{})
			if err != nil {
				return err
			}
			var got []string
			for _, e := range slice.Endpoints {
				got = append(got, e.Addresses...)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("endpoints are %v, want %v", got, want)
			}
			return nil
		}
	}
	waitUntil(t, endpoints("10.0.0.1", "10.0.0.2"))
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	waitUntil(t, endpoints("10.0.0.1"))
}
