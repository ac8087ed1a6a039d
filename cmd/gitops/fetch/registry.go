package fetch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"clusterctl/daemons/config/gitsource"
)

// keyDockerConfig is the key of a Secret of type kubernetes.io/dockerconfigjson.
const keyDockerConfig = ".dockerconfigjson"

// maxToken is the number of bytes of a token server's answer.
const maxToken = 256 << 10

// registry is a repository of a registry. See https://github.com/opencontainers/distribution-spec/blob/main/spec.md.
type registry struct {
	scheme, host, repository string
	client                   *http.Client
	username, password       string
	authorization            string // value of the header; empty before a registry asks for it
	isFixed                  bool   // authorization is a token of the Secret
}

// newRegistry returns a registry to which nothing was sent yet. A registry at a loopback address is spoken to without
// TLS, unless the Secret has a CA.
func newRegistry(direct dialer, spec *gitsource.Spec, credentials map[string][]byte) (*registry, error) {
	at, err := url.Parse(spec.URL)
	if err != nil {
		return nil, permanentError{err}
	}
	r := &registry{scheme: "https", host: at.Host, repository: strings.Trim(at.Path, "/")}
	if isLoopback(at.Hostname()) && credentials[keyCA] == nil {
		r.scheme = "http"
	}
	if at.Host == "docker.io" {
		r.host = "registry-1.docker.io"
	}
	r.username = string(credentials[keyUsername])
	r.password = strings.TrimRight(string(credentials[keyPassword]), "\r\n")
	if text := credentials[keyDockerConfig]; text != nil {
		if r.password != "" {
			return nil, permanent("the Secret has both %s and %s; remove one of them", keyPassword, keyDockerConfig)
		}
		if r.username, r.password, err = dockerCredentials(text, at.Host, r.repository); err != nil {
			return nil, err
		}
	}
	if bearer := strings.TrimSpace(string(credentials[keyBearer])); bearer != "" {
		if r.password != "" {
			return nil, permanent("the Secret has both a password and %s; remove one of them", keyBearer)
		}
		r.authorization, r.isFixed = "Bearer "+bearer, true
	}
	// Registries redirect requests for blobs to other servers, which must not receive the credentials.
	r.client, err = newClient(direct, spec.Proxy, credentials, func(q *http.Request, first *url.URL) error {
		if q.URL.Host != first.Host {
			q.Header.Del("Authorization")
		}
		return nil
	})
	return r, err
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// dockerCredentials returns the credentials for a repository of a registry from a file of Docker. If several entries
// match, that with the longest path applies.
func dockerCredentials(text []byte, host, repository string) (username, password string, err error) {
	type entry struct {
		Auth          string `json:"auth"`
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
	}
	var config struct {
		Auths map[string]entry `json:"auths"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return "", "", fmt.Errorf("the Secret's %s is not JSON with the field auths", keyDockerConfig)
	}
	var found *entry
	length := -1
	for _, name := range slices.Sorted(maps.Keys(config.Auths)) {
		at, path, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://"), "/")
		if path = strings.Trim(path, "/"); path == "v1" || path == "v2" { // of an API, not of a repository
			path = ""
		}
		matches := at == host || host == "docker.io" && at == "index.docker.io"
		if matches && len(path) > length && (path == "" || strings.HasPrefix(repository+"/", path+"/")) {
			e := config.Auths[name]
			found, length = &e, len(path)
		}
	}
	switch {
	case found == nil:
		return "", "", fmt.Errorf("the Secret's %s has no credentials for %s", keyDockerConfig, host)
	case found.IdentityToken != "":
		return "", "", fmt.Errorf("the Secret's %s has an identity token for %s, which is not supported",
			keyDockerConfig, host)
	case found.Auth == "":
		return found.Username, found.Password, nil
	}
	decoded, err := base64.StdEncoding.DecodeString(found.Auth)
	username, password, ok := strings.Cut(string(decoded), ":")
	if err != nil || !ok {
		return "", "", fmt.Errorf("the Secret's %s has damaged credentials for %s", keyDockerConfig, host)
	}
	return username, strings.TrimRight(password, "\x00"), nil
}

// parameterPattern matches a parameter of a challenge.
var parameterPattern = regexp.MustCompile(`([a-zA-Z]+)="([^"]*)"`)

// authenticate answers the challenges of a registry.
func (r *registry) authenticate(ctx context.Context, challenges []string) error {
	if r.isFixed {
		return errors.New("the registry refuses the token")
	}
	for _, challenge := range challenges {
		scheme, rest, _ := strings.Cut(challenge, " ")
		switch strings.ToLower(scheme) {
		case "basic":
			if r.password == "" {
				return errors.New("the registry requires credentials; see spec.secret")
			}
			r.authorization = basic(r.username, r.password)
			return nil
		case "bearer":
			parameters := map[string]string{}
			for _, m := range parameterPattern.FindAllStringSubmatch(rest, 20) {
				parameters[strings.ToLower(m[1])] = m[2]
			}
			token, err := r.token(ctx, parameters["realm"], parameters["service"])
			if err != nil {
				return fmt.Errorf("request a token: %w", err)
			}
			r.authorization = "Bearer " + token
			return nil
		}
	}
	return errors.New("the registry asks for credentials in a way that is not supported")
}

func basic(username, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(username+":"+password))
}

// token requests a token for reading the repository. The server that gives it out is named by the registry.
func (r *registry) token(ctx context.Context, realm, service string) (string, error) {
	at, err := url.Parse(realm)
	switch {
	case err != nil || at.Host == "" || at.User != nil:
		return "", errors.New("the registry names no server for tokens")
	case at.Scheme != "https" && (at.Scheme != "http" || r.scheme != "http" || !isLoopback(at.Hostname())):
		return "", fmt.Errorf("the registry names a server for tokens whose URL begins with %q", at.Scheme)
	}
	query := at.Query()
	query.Set("scope", "repository:"+r.repository+":pull")
	if service != "" {
		query.Set("service", service)
	}
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("User-Agent", "clusterctl")
	if r.password != "" {
		request.Header.Set("Authorization", basic(r.username, r.password))
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return "", withoutURL(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the server for tokens refuses the credentials (%s)", answer.Status)
	}
	text, err := readAll(answer.Body, maxToken)
	if err != nil {
		return "", err
	}
	var content struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return "", errors.New("the answer of the server for tokens is not JSON")
	}
	if content.Token == "" {
		content.Token = content.AccessToken
	}
	if content.Token == "" || strings.ContainsAny(content.Token, "\r\n") {
		return "", errors.New("the server for tokens sends none")
	}
	return content.Token, nil
}
