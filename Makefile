# clusterctl: `make help` lists the targets.

SHELL    := bash
BIN      := bin
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
MODFLAGS := -trimpath -buildvcs=false -tags grpcnotrace
LDFLAGS  := -s -w -X clusterctl/daemons/version.Version=$(VERSION)
GO       := CGO_ENABLED=0 go

# Programs and tests are compiled without debugging information, in an eighth less time. Tests that build programs, and
# staticcheck, use the same flags, so that nothing is compiled twice.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false)

SUDO     := $(shell [ $$(id -u) = 0 ] || echo sudo)
CNI      := bandwidth loopback host-local portmap

# What a fresh Debian or Ubuntu machine with Go, git and make lacks: to build, to run machines, and to run the tests.
PACKAGES      := gcc patch libc6-dev pkg-config libseccomp-dev
LAB_PACKAGES  := mmdebstrap systemd-container iproute2 openssh-client busybox-static e2fsprogs
TEST_PACKAGES := nftables iptables openssh-server conntrack xfsprogs user-mode-linux bird2 fish tcsh sudo chromium

.PHONY: help
help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: binaries gitops-controller runtime ## Build the whole bundle into bin/
	$(BIN)/clusterctl pack

# The bundle without the GitOps controller, whose libraries take minutes to compile. Clusters without git_source blocks
# need no more.
.PHONY: build-base
build-base: binaries runtime
	$(BIN)/clusterctl pack

# The kinds of Gateway API that kube-ingress carries out, from the module that go.mod pins; clusterctl has them inside.
DEFINITIONS := provision/workload/definitions/gateway-api.yaml.gz

$(DEFINITIONS): go.mod
	@go mod download sigs.k8s.io/gateway-api
	@cd $$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/standard && for kind in gatewayclasses gateways httproutes referencegrants; do \
		echo --- && cat gateway.networking.k8s.io_$$kind.yaml || exit 1; done | gzip -9n >$(CURDIR)/$@

# Go knows what has changed. pause goes without the version, so that a release alone does not change the image of all pods.
.PHONY: binaries
binaries: $(DEFINITIONS) ## Build clusterctl, etcd, pause and podlink
	@mkdir -p $(BIN)/cni
	$(GO) build $(MODFLAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/clusterctl ./cmd/etcd
	$(GO) build $(MODFLAGS) -ldflags '-s -w' -o $(BIN)/ ./cmd/pause
	$(GO) build $(MODFLAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/cni/ ./cmd/podlink

# After the runtime: builds beside each other would both compile what they share.
.PHONY: gitops-controller
gitops-controller: | runtime ## Build the GitOps controller
	cd cmd/gitops && $(GO) build $(MODFLAGS) -ldflags '$(LDFLAGS)' -o $(CURDIR)/$(BIN)/gitops-controller .

# Programs of other projects are built when the files that name their sources have changed, or their flags, or Go's version.
# Go compares the sources then, and leaves a program as it is when an edit of go.mod was about other modules. $(call flags,NAME,FLAGS)
# is a file with a digest of the flags and the version in its name.
TOOLCHAIN := $(shell go env GOVERSION GOARCH GOAMD64 GOFLAGS GOEXPERIMENT CC)
flags      = $(BIN)/.flags/$(1)-$(firstword $(shell printf %s '$(subst ','"'"',$(TOOLCHAIN) $(2))' | cksum))

$(BIN)/.flags/%:
	@mkdir -p $(@D) && rm -f $(BIN)/.flags/$(firstword $(subst -, ,$*))-* && touch $@

version = $(shell awk '$$1 == "$(1)" {print $$2}' go.mod)

# The container runtime and the network plugins, at the versions that go.mod pins.
CONTAINERD := $(call version,github.com/containerd/containerd/v2)
RUNC       := $(call version,github.com/opencontainers/runc)
PLUGINS    := $(call version,github.com/containernetworking/plugins)

# The version of the patched containerd. Increase the last number when a patch changes.
CONTAINERD_PATCHED := $(CONTAINERD)+clusterctl.1

CONTAINERD_FLAGS := $(MODFLAGS) -ldflags '-s -w -X github.com/containerd/containerd/v2/version.Version=$(CONTAINERD_PATCHED)'
SHIM_FLAGS       := $(MODFLAGS) -ldflags '-s -w -X github.com/containerd/containerd/v2/version.Version=$(CONTAINERD)'
RUNC_FLAGS       := -trimpath -tags 'seccomp netgo osusergo' -ldflags '-s -w -linkmode external -extldflags "-static" -X main.version=$(RUNC:v%=%)'
PLUGIN_FLAGS     := $(MODFLAGS) -ldflags '-s -w -X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=$(PLUGINS)'

.PHONY: runtime
runtime: $(addprefix $(BIN)/,containerd containerd-shim-runc-v2 runc) $(addprefix $(BIN)/cni/,$(CNI))

# containerd is built from a copy of its sources to which cmd/containerd's patches are applied.
PATCHES := $(wildcard cmd/containerd/*.patch)
PATCHED := $(BIN)/.containerd

# After clusterctl's: builds beside each other would both compile what they share.
$(BIN)/containerd: go.mod go.sum $(PATCHES) $(wildcard cmd/containerd/*.go daemons/run/watchdog/*.go daemons/run/manager/*.go) $(call flags,containerd,$(CONTAINERD_FLAGS) $(PATCHES)) | build-deps binaries
	@go mod download github.com/containerd/containerd/v2
	@rm -rf $(PATCHED) && cp -r $$(go list -m -f '{{.Dir}}' github.com/containerd/containerd/v2) $(PATCHED) && chmod -R u+w $(PATCHED)
	@for p in $(PATCHES); do patch --silent --fuzz=0 -p1 -d $(PATCHED) <$$p || exit 1; done
	@cp go.sum $(PATCHED)/bundle.sum && cp go.mod $(PATCHED)/bundle.mod && \
		go mod edit -replace github.com/containerd/containerd/v2=./$(PATCHED) $(PATCHED)/bundle.mod
	$(GO) build -modfile=$(PATCHED)/bundle.mod $(CONTAINERD_FLAGS) -o $@ ./cmd/containerd
	@rm -rf $(PATCHED) && touch $@

$(BIN)/containerd-shim-runc-v2: go.mod go.sum $(call flags,shim,$(SHIM_FLAGS)) | $(BIN)/containerd
	$(GO) build $(SHIM_FLAGS) -o $@ github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	@touch $@

$(BIN)/runc: go.mod go.sum $(call flags,runc,$(RUNC_FLAGS)) | $(BIN)/containerd
	CGO_ENABLED=1 go build $(RUNC_FLAGS) -o $@ github.com/opencontainers/runc
	@touch $@

$(addprefix $(BIN)/cni/,$(CNI)) &: go.mod go.sum $(call flags,cni,$(PLUGIN_FLAGS)) | $(BIN)/containerd
	@mkdir -p $(BIN)/cni
	$(GO) build $(PLUGIN_FLAGS) -o $(BIN)/cni/ $(addprefix github.com/containernetworking/plugins/plugins/,ipam/host-local main/loopback meta/bandwidth meta/portmap)
	@touch $(addprefix $(BIN)/cni/,$(CNI))

# Installs those of some Debian packages that are missing.
define packages
	@missing=; for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	install() { $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; }; \
	[ -z "$$missing" ] || { echo "installing:$$missing"; install 2>/dev/null || { $(SUDO) apt-get update -qq && install; }; }
endef

.PHONY: deps lab-deps build-deps
build-deps:
	$(call packages,$(PACKAGES))
lab-deps: build-deps
	$(call packages,$(LAB_PACKAGES))
deps: lab-deps ## Install the Debian packages that the build, the lab and the tests need
	$(call packages,$(TEST_PACKAGES))

# What tests drive a cluster with: a current kubectl, Debian's, Debian's Prometheus, a stock etcdctl and helm, an operator of controller-runtime's, and an API server to aggregate.
.PHONY: test-tools
test-tools: deps demo-tools releases $(addprefix $(BIN)/,kubectl kubectl-debian prometheus etcdctl helm h2spec gofakes3)
	$(GO) build $(MODFLAGS) -ldflags '-s -w' -o $(BIN)/ $(addprefix ./tests/programs/,operator bookshop issuer reviewer kmsplugin)
	$(GO) build $(MODFLAGS) -o $(BIN)/ ./tests/lab ./tests/suites/chaos ./tests/bench/marks

# Builds that tests update to: another version; one whose API server cannot start; one whose controllers end a while after they have started.
.PHONY: releases
releases: $(DEFINITIONS)
	@mkdir -p $(BIN)/releases
	@echo '{"Replace": {"$(CURDIR)/cmd/clusterctl/broken.go": "$(CURDIR)/tests/suites/roll/testdata/broken.go"}}' >$(BIN)/releases/overlay.json
	$(GO) build $(MODFLAGS) -ldflags '$(LDFLAGS)-next' -o $(BIN)/releases/next/clusterctl ./cmd/clusterctl
	$(GO) build $(MODFLAGS) -overlay $(BIN)/releases/overlay.json -ldflags '$(LDFLAGS)-broken -X "main.broken=kube-apiserver 0s"' -o $(BIN)/releases/broken/clusterctl ./cmd/clusterctl
	$(GO) build $(MODFLAGS) -overlay $(BIN)/releases/overlay.json -ldflags '$(LDFLAGS)-dying -X "main.broken=kube-controller-manager 2s"' -o $(BIN)/releases/dying/clusterctl ./cmd/clusterctl

# What the demo needs besides the bundle.
.PHONY: demo-tools
demo-tools:
	$(GO) build $(MODFLAGS) -ldflags '-s -w' -o $(BIN)/test-web ./tests/programs/web
	$(GO) build $(MODFLAGS) -ldflags '-s -w' -o $(BIN)/ ./tests/suites/demo

.PHONY: kubectl
kubectl: $(BIN)/kubectl ## Build a current kubectl into bin/; an installed one works too

KUBECTL_VERSION := $(call version,k8s.io/kubectl)
KUBECTL_VERSION := $(KUBECTL_VERSION:v0%=v1%)
KUBECTL_FLAGS   := $(MODFLAGS) -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBECTL_VERSION) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBECTL_VERSION)'

$(BIN)/kubectl: go.mod go.sum $(wildcard tests/programs/kubectl/*.go tests/programs/kubectl/*/*.go) $(call flags,kubectl,$(KUBECTL_FLAGS))
	$(GO) build $(KUBECTL_FLAGS) -o $@ ./tests/programs/kubectl
	@touch $@

$(BIN)/kubectl-debian:
	@mkdir -p $(BIN)/.debian && cd $(BIN)/.debian && $(SUDO) apt-get download -qq -o APT::Sandbox::User=root kubernetes-client >/dev/null && dpkg -x kubernetes-client_*.deb . \
		&& mv usr/bin/kubectl ../kubectl-debian && cd .. && rm -rf .debian

# The container runtime of Debian 12, which clusters can use instead of the bundle's.
$(BIN)/debian-runtime:
	@rm -rf $(BIN)/.debian-runtime && mkdir -p $(BIN)/.debian-runtime && cd $(BIN)/.debian-runtime && $(SUDO) apt-get download -qq -o APT::Sandbox::User=root containerd runc >/dev/null \
		&& dpkg -x containerd_*.deb . && dpkg -x runc_*.deb . && mkdir programs && mv usr/bin/containerd usr/bin/containerd-shim* usr/sbin/runc programs/ && mv programs ../debian-runtime && cd .. && rm -rf .debian-runtime

$(BIN)/prometheus:
	@mkdir -p $(BIN)/.debian-prometheus && cd $(BIN)/.debian-prometheus && $(SUDO) apt-get download -qq -o APT::Sandbox::User=root prometheus >/dev/null && dpkg -x prometheus_*.deb . \
		&& mv usr/bin/prometheus ../prometheus && cd .. && rm -rf .debian-prometheus

# Programs that tests use from a module of their own.
TOOL_FLAGS := -trimpath -ldflags '-s -w'

$(BIN)/etcdctl: PACKAGE := go.etcd.io/etcd/etcdctl/v3
$(BIN)/helm: PACKAGE := helm.sh/helm/v4/cmd/helm
$(BIN)/gofakes3: PACKAGE := github.com/johannesboyne/gofakes3/cmd/gofakes3
$(BIN)/h2spec: PACKAGE := github.com/summerwind/h2spec/cmd/h2spec

$(addprefix $(BIN)/,etcdctl helm gofakes3 h2spec): tests/tools/external/go.mod tests/tools/external/go.sum $(call flags,tool,$(TOOL_FLAGS))
	cd tests/tools/external && $(GO) build $(TOOL_FLAGS) -o $(CURDIR)/$@ $(PACKAGE)
	@touch $@

PREFIX  ?= /usr/local
DESTDIR ?=
LIB     := $(DESTDIR)$(PREFIX)/lib/clusterctl
SHARE   := $(DESTDIR)$(PREFIX)/share
SHELLS  := bash-completion/completions/clusterctl zsh/site-functions/_clusterctl fish/vendor_completions.d/clusterctl.fish

# The bundle stays together: clusterctl finds it beside itself, through the link in bin.
.PHONY: install
install: build ## Install the bundle, its manual and completions below PREFIX; DESTDIR is prepended
	install -d $(LIB)/cni $(DESTDIR)$(PREFIX)/bin $(SHARE)/man/man1 $(dir $(addprefix $(SHARE)/,$(SHELLS)))
	install -m 755 $(addprefix $(BIN)/,clusterctl etcd pause gitops-controller containerd containerd-shim-runc-v2 runc) $(LIB)/
	install -m 755 $(addprefix $(BIN)/cni/,podlink $(CNI)) $(LIB)/cni/
	rm -rf $(LIB)/packed
	if [ -d $(BIN)/packed ]; then install -d $(LIB)/packed && install -m 644 $(BIN)/packed/* $(LIB)/packed/; fi
	ln -sfn ../lib/clusterctl/clusterctl $(DESTDIR)$(PREFIX)/bin/clusterctl
	$(LIB)/clusterctl man $(SHARE)/man/man1
	$(LIB)/clusterctl completion bash >$(SHARE)/bash-completion/completions/clusterctl
	$(LIB)/clusterctl completion zsh >$(SHARE)/zsh/site-functions/_clusterctl
	$(LIB)/clusterctl completion fish >$(SHARE)/fish/vendor_completions.d/clusterctl.fish

.PHONY: uninstall
uninstall: ## Remove what install has put below PREFIX
	rm -rf $(LIB)
	rm -f $(DESTDIR)$(PREFIX)/bin/clusterctl $(SHARE)/man/man1/clusterctl.1 $(SHARE)/man/man1/clusterctl-*.1 $(addprefix $(SHARE)/,$(SHELLS))

.PHONY: lint
lint: ## Check gofmt, go vet, staticcheck, style, and the lengths of files and functions
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not gofmt-ed: $$bad"; exit 1; }
	$(GO) vet $(MODFLAGS) ./...
	cd cmd/gitops && $(GO) vet $(MODFLAGS) ./...
	$(GO) tool -modfile=tests/tools/external/go.mod staticcheck -tags grpcnotrace ./...
	$(GO) run $(MODFLAGS) ./tests/tools/style -rules lines,docs,words,names,size $$(git ls-files '*.go' '*.md')
	@git ls-files '*.go' | xargs wc -l | awk '$$1 > 400 && $$2 != "total" {print "long:", $$2, $$1, "lines"}' | sort

# The bundle for suites that look for data races: only clusterctl is built with the race detector.
.PHONY: race-bundle
race-bundle:
	@mkdir -p $(BIN)/race/packed
	@cd $(BIN)/race && for f in ../*; do case $$f in ../race|../packed|../clusterctl|../test-logs|../tests) ;; *) ln -sfn $$f . ;; esac; done
	@ln -f $(BIN)/packed/* $(BIN)/race/packed/
	CGO_ENABLED=1 go build $(MODFLAGS) -race -ldflags '$(LDFLAGS)' -o $(BIN)/race/clusterctl ./cmd/clusterctl
	$(BIN)/clusterctl pack $(BIN)/race/clusterctl

# tests/tools/runner has the list of suites; ONLY=roll,e2e chooses some of a target's. FRESH=1 ignores cached results.
RUNNER = go run $(MODFLAGS) ./tests/tools/runner $(if $(ONLY),-only $(ONLY)) $(if $(FRESH),-fresh)

.PHONY: check
check: deps binaries $(addprefix $(BIN)/,helm h2spec) ## Lint, and run every test that needs no machines
	@$(RUNNER) check

.PHONY: test
test: build test-tools ## Run what CI runs: lint, all packages with the race detector, and the suites on machines; needs root
	@$(RUNNER) test

.PHONY: test-all
test-all: export FRESH := 1
test-all: build test-tools $(BIN)/debian-runtime ## Run every suite in its long form; takes hours and needs root
	@$(RUNNER) all

STORE ?= etcd

.PHONY: conformance
conformance: ## Compare an API server with the documentation of the Kubernetes API, for every kind
	go test $(MODFLAGS) -count=1 -timeout 5m ./tests/suites/conformance -args -store=$(STORE)

# The tag libraries selects the libraries in place of our own code: docs/decisions/hand-written.md.
.PHONY: test-libraries
test-libraries: ## Run the tests of HTTP/2, etcd calls and JSON with the libraries instead of our own code
	go test $(MODFLAGS),libraries -count=1 -timeout 15m ./daemons/client ./daemons/store/etcd ./daemons/apiserver/objectjson ./daemons/apiserver ./tests/suites/conformance

.PHONY: test-gitops
test-gitops: ## Test the GitOps controller's program, which is a separate Go module
	cd cmd/gitops && $(GO) test $(MODFLAGS) $(if $(FRESH),-count=1) -timeout 45m ./...

# Beside the control plane and its pretended nodes of `clusterctl dev` run kube-ingress and kube-proxy, in a network of their own.
.PHONY: conformance-gateway
conformance-gateway: binaries ## Run Gateway API's conformance suite against the ingress proxy; needs root
	cd tests/suites/gateway && $(GO) test -c -o $(CURDIR)/$(BIN)/conformance-gateway .
	$(SUDO) env CLUSTERCTL_BUNDLE=$(CURDIR)/$(BIN) GATEWAY_DEFINITIONS=$(CURDIR)/$(DEFINITIONS) CLUSTERCTL_VERSION=$(VERSION) CONFORMANCE_REPORT=$(CURDIR)/$(BIN)/conformance-gateway.yaml \
		unshare --net $(BIN)/conformance-gateway -test.timeout 15m $(ARGS)

.PHONY: bench-ingress
bench-ingress: ## Measure the ingress proxy, nginx and haproxy into docs/benchmarks-ingress.md
	@command -v nginx >/dev/null && command -v haproxy >/dev/null || DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends nginx-light haproxy
	@$(GO) build $(MODFLAGS) -o $(BIN)/bench-ingress ./tests/bench/ingress && $(SUDO) unshare --net sh -c 'ip link set lo up; $(BIN)/bench-ingress $(ARGS)'

TIME ?= 10m

# One target at a time: each uses all cores. What is found is kept beside the test, in testdata/fuzz, and is tried by every go test.
.PHONY: fuzz
fuzz: ## Run every fuzz test for TIME; FUZZ selects by name
	@grep -rno '^func Fuzz[A-Za-z]*$(FUZZ)[A-Za-z]*' --include=*_test.go . | sed -E 's|^\./(.*)/[^/]*:[0-9]*:func (.*)|\1 \2|' | sort -u | while read dir name; do \
		echo "== $$name of $$dir for $(TIME)"; \
		go test $(MODFLAGS) -run '^$$' -fuzz "^$$name\$$" -fuzztime $(TIME) ./$$dir || exit 1; \
	done

WORLDS ?= 20000

.PHONY: oracle
oracle: ## Compare scheduler and network policies with plain models of the documentation in WORLDS random clusters
	WORLDS=$(WORLDS) go test $(MODFLAGS) -v -count=1 -timeout 60m -run 'Oracle|Drift' ./daemons/scheduler
	go test $(MODFLAGS) -v -count=1 -timeout 60m -run Specification ./daemons/network/policy -rapid.checks=$(WORLDS)

ROUNDS ?= 20

.PHONY: faults
faults: ## Run the controllers ROUNDS times under random faults (SEED), and compare with a run without faults
	ROUNDS=$(ROUNDS) go test $(MODFLAGS) -race -v -count=1 -timeout 120m ./tests/suites/faults

ONLY ?=

.PHONY: disasters
disasters: build test-tools ## Cause each disaster of docs/operations/ on machines, and follow its page; ONLY selects by name
	$(SUDO) env CLUSTERCTL_BUNDLE=$(CURDIR)/$(BIN) "PATH=$$PATH" go test $(MODFLAGS) -v -count=1 -timeout 180m ./tests/suites/disaster -args $(if $(ONLY),-only $(ONLY),-all)

KILLS ?= 50

.PHONY: packets
packets: build test-tools ## Kill the network daemons KILLS times and flush their rules; no connection may fail
	$(SUDO) env CLUSTERCTL_BUNDLE=$(CURDIR)/$(BIN) "PATH=$$PATH" go test $(MODFLAGS) -v -count=1 -timeout 120m ./tests/suites/packets -args -kills $(KILLS)

MODES ?= nftables,iptables,userspace

.PHONY: matrix
matrix: build test-tools ## Send packets every way through a cluster, and compare with the documentation, in all MODES of the proxy
	$(SUDO) env CLUSTERCTL_BUNDLE=$(CURDIR)/$(BIN) "PATH=$$PATH" go test $(MODFLAGS) -v -count=1 -timeout 30m ./tests/suites/matrix -args -modes $(MODES)

POINTS ?= 40

# Without a SEED each draws its own and prints it.
.PHONY: interrupt
interrupt: build test-tools ## Interrupt applies at POINTS random points (SEED); the next apply must converge
	$(SUDO) env CLUSTERCTL_BUNDLE=$(CURDIR)/$(BIN) "PATH=$$PATH" go test $(MODFLAGS) -v -count=1 -timeout 90m ./tests/suites/interrupt -args -points $(POINTS) -seed $(or $(SEED),0)

# The machines' root file system is built beside the bundle. When that fails, demo up tries it again.
.PHONY: demo
demo: lab-deps ## Install a cluster with a workload on three local machines
	@$(SUDO) true
	@$(MAKE) --no-print-directory -j2 build-base rootfs
	@$(MAKE) --no-print-directory demo-tools
	@$(SUDO) $(BIN)/demo up

.PHONY: rootfs
rootfs: lab-deps
	@$(SUDO) tests/lab/machines/rootfs.sh >/dev/null || echo "this is tried again when the bundle is built"

.PHONY: demo-down
demo-down: demo-tools ## Remove the demo; only the lab's cache stays
	@$(SUDO) $(BIN)/demo down

MINUTES ?= 30

.PHONY: chaos
chaos: build test-tools ## Inject random faults (SEED) into a cluster of six machines for MINUTES, and check invariants
	$(SUDO) $(BIN)/chaos run $(if $(SEED),-seed $(SEED)) -minutes $(MINUTES)

.PHONY: chaos-full
chaos-full: build test-tools ## Inject every kind of fault in turn into one cluster
	$(SUDO) bash -c 'trap "$(BIN)/chaos -name chaos-full down" EXIT; set -e; c="$(BIN)/chaos -name chaos-full"; $$c up; \
		$$c again -each kill; $$c again -each stop; $$c again -faults "power c1,c2 for 40s; expire n1 kubelet for 40s; lose c1 for 5s"; $$c minority; $$c rollout; $$c moving -usual'

.PHONY: chaos-api
chaos-api: binaries ## Inject random faults (SEED) into three API servers and etcd for ten minutes, and check histories
	$(GO) build $(MODFLAGS) -o $(BIN)/ ./tests/suites/chaos
	$(BIN)/chaos api $(if $(SEED),-seed $(SEED)) -minutes 10

.PHONY: flood
flood: build test-tools ## Flood every listener of a cluster for MINUTES without credentials, and check bounds on memory
	$(GO) build $(MODFLAGS) -o $(BIN)/ ./tests/suites/flood
	$(SUDO) $(BIN)/flood -minutes $(MINUTES)

.PHONY: bench
bench: build test-tools ## Measure the targets of docs/benchmarks.md
	$(SUDO) $(BIN)/marks

.PHONY: bench-idle
bench-idle: build test-tools ## Measure the CPU time that 100 idle pods with probes cost their node
	$(SUDO) $(BIN)/marks -idle

.PHONY: bench-api
bench-api: binaries ## Measure the API server into docs/benchmarks-api.md, and compare with the last release
	$(GO) build $(MODFLAGS) -ldflags '-s -w' -o $(BIN)/ ./tests/bench/kubebench ./tests/bench/api
	$(BIN)/api

.PHONY: bench-scheduler
bench-scheduler: binaries ## Measure scheduler and controllers into docs/benchmarks-scheduler.md; RUNS, ONLY=algorithm,whole,deployment,collection,memory
	$(GO) build $(MODFLAGS) -o $(BIN)/bench-scheduler ./tests/bench/scheduler
	$(BIN)/bench-scheduler $(if $(RUNS),-runs $(RUNS)) $(if $(ONLY),-only $(ONLY)) $(if $(PROFILES),-profiles $(PROFILES))

.PHONY: bench-gitops
bench-gitops: binaries gitops-controller ## Measure the GitOps controller into docs/benchmarks-gitops.md; ONLY=sources,large,helm and ARGS
	$(GO) build $(MODFLAGS) -o $(BIN)/bench-gitops ./tests/bench/gitops
	$(BIN)/bench-gitops $(if $(ONLY),-only $(ONLY)) $(ARGS)

.PHONY: bench-network
bench-network: ## Measure the network into docs/benchmarks-network.md; RUNS, ONLY=proxy,policy,pods,dns,balancer
	$(GO) build $(MODFLAGS) -o $(BIN)/bench-network ./tests/bench/network
	$(SUDO) env "PATH=$$PATH" $(BIN)/bench-network $(if $(RUNS),-runs $(RUNS)) $(if $(ONLY),-only $(ONLY))

.PHONY: bench-plan
bench-plan: build test-tools ## Measure provisioning and Ansible into docs/benchmarks-plan.md; RUNS, ONLY=language,engine,small,ha,ansible
	$(GO) build $(MODFLAGS) -o $(BIN)/bench-plan ./tests/bench/plan
	$(SUDO) env "PATH=$$PATH" $(BIN)/bench-plan $(if $(RUNS),-runs $(RUNS)) $(if $(ONLY),-only $(ONLY))

.PHONY: size
size: build ## Print the size of each binary
	@ls -l --block-size=K $(BIN) $(BIN)/cni | awk 'NF > 8 {print $$9, $$5}' | column -t

.PHONY: clean
clean: ## Remove everything that was built, and the lab's cache
	rm -rf $(BIN)
	$(SUDO) rm -rf /var/cache/clusterctl-lab
