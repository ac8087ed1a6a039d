package apiserver_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/apiserver/h2"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd"
	"clusterctl/daemons/store/memory"
	"clusterctl/daemons/store/storetest"
)

// startConfig serves over a store until the test ends. It returns the client configuration.
func startConfig(t testing.TB, s store.Store, change func(*apiserver.Options)) *rest.Config {
	t.Helper()
	_, cfg := startServer(t, s, change)
	return cfg
}

func startServer(t testing.TB, s store.Store, change func(*apiserver.Options)) (*apiserver.Server, *rest.Config) {
	t.Helper()
	o := apiserver.Options{
		Storage:   apiserver.OpenStorage(s, "", kinds.All(), slog.New(slog.DiscardHandler)),
		Env:       run.NewEnv(slog.New(slog.DiscardHandler)),
		Admission: apiserver.Admission{External: &write.External{}},
		Addresses: apiserver.Addresses{ServiceClusterIPRange: []string{"10.96.0.0/16"}},
	}
	if change != nil {
		change(&o)
	}
	server, err := apiserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	web := httptest.NewUnstartedServer(server)
	web.EnableHTTP2 = true
	own := h2.Server{Log: o.Env.Log}
	own.Attach(web.Config)
	web.Listener = own.Listen(web.Listener)
	web.StartTLS()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
		own.Close()
	})
	waitUntil(t, func() error { return o.Env.Health.Err(true) })
	return server, &rest.Config{Host: web.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
}

type apiserverOptions = apiserver.Options

// stores are the stores that tests run over.
var stores = map[string]func(t testing.TB) store.Store{
	"memory": func(t testing.TB) store.Store {
		s := memory.New()
		t.Cleanup(s.Close)
		return s
	},
	"etcd": func(t testing.TB) store.Store {
		s, err := etcd.Open(etcd.Config{Endpoints: []string{storetest.Etcd(t)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	},
}

// overStores runs a test over each of the stores.
func overStores(t *testing.T, test func(t *testing.T, cfg *rest.Config)) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) { test(t, startConfig(t, open(t), nil)) })
	}
}
