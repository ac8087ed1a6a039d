package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"clusterctl/tests/lab/plane"
)

// writeProfile writes a profile of a daemon into the folder of profiles. Without such a folder it does nothing.
func (c *controlPlane) writeProfile(ctx context.Context, address, name, which string) error {
	if c.profiles == "" {
		return nil
	}
	cfg := rest.CopyConfig(c.config)
	cfg.ServerName = "localhost"
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/debug/pprof/"+which, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("profile of %s: %s", name, answer.Status), err)
	}
	return os.WriteFile(filepath.Join(c.profiles, name+".pprof"), data, 0o644)
}

// profileCPU records the CPU profiles of a daemon and of the API server for eight seconds, from now or from when the
// daemon first answers.
func (c *controlPlane) profileCPU(ctx context.Context, daemon *plane.Process, name string) {
	if c.profiles == "" {
		return
	}
	for which, address := range map[string]string{"daemon": c.HealthAddress(daemon), "api": c.Addresses()[0]} {
		c.profilers.Go(func() error {
			return wait.PollUntilContextTimeout(
				ctx,
				20*time.Millisecond,
				30*time.Second,
				true,
				func(ctx context.Context) (bool, error) {
					return c.writeProfile(ctx, address, name+"-"+which, "profile?seconds=8") == nil, nil
				},
			)
		})
	}
}
