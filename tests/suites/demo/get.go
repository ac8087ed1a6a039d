package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"clusterctl/tests/lab/cluster"
)

// asTable is the media type with which the API server returns objects as a table, as it does for kubectl.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// apiTable is the part of a Table that is used.
type apiTable struct {
	ColumnDefinitions []struct {
		Name     string
		Priority int // above 0: only shown if there is room
	}
	Rows []struct {
		Cells  []any
		Object struct{ Metadata struct{ Namespace string } }
	}
}

// printTable prints the objects at a path of the API.
func printTable(ctx context.Context, w io.Writer, c *cluster.Cluster, path string) error {
	var t apiTable
	if err := getAsAdmin(ctx, c, path, asTable, &t); err != nil {
		return err
	}
	out := tabwriter.NewWriter(w, 0, 4, 3, ' ', 0)
	line := func(namespace string, cells []string) {
		if len(t.Rows) > 0 && t.Rows[0].Object.Metadata.Namespace != "" {
			cells = append([]string{namespace}, cells...)
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	var heads []string
	for _, column := range t.ColumnDefinitions {
		if column.Priority == 0 {
			heads = append(heads, strings.ToUpper(column.Name))
		}
	}
	line("NAMESPACE", heads)
	for _, row := range t.Rows {
		var cells []string
		for i, column := range t.ColumnDefinitions {
			if column.Priority == 0 && i < len(row.Cells) {
				cells = append(cells, fmt.Sprint(row.Cells[i]))
			}
		}
		line(row.Object.Metadata.Namespace, cells)
	}
	return out.Flush()
}

// getAsAdmin gets a path of the API as the administrator and decodes the answer.
func getAsAdmin(ctx context.Context, c *cluster.Cluster, path, accept string, into any) error {
	server, client, err := adminClient(c)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.Kubeconfig(), err)
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", accept)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s: %s", path, answer.Status, strings.TrimSpace(string(text)))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

// adminClient reads the kubeconfig. It returns the URL of the API server, and a client with the administrator's
// certificate.
func adminClient(c *cluster.Cluster) (server string, client *http.Client, err error) {
	text, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return "", nil, err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", nil, err
	}
	if len(config.Clusters) == 0 || len(config.Users) == 0 {
		return "", nil, errors.New("it has no cluster or no user")
	}
	user := config.Users[0].User
	pair, err := tls.X509KeyPair(user.Certificate, user.Key)
	if err != nil {
		return "", nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CA) {
		return "", nil, errors.New("it has no certificate authority")
	}
	return config.Clusters[0].Cluster.Server, &http.Client{Transport: &http.Transport{
		DialContext:     c.Lab.Dial,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}}, nil
}
