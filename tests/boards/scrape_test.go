package boards

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Debian's Prometheus cannot find targets by the API of Kubernetes, and there are no credentials of a pod here. All else
// of these files is checked as it is.
func TestScrapeConfigurationsAreValid(t *testing.T) {
	discovery := regexp.MustCompile(`(?m)^    kubernetes_sd_configs:\n      - role: pod\n(        .*\n)*`)
	mounted := regexp.MustCompile(`/var/run/secrets/kubernetes.io/serviceaccount/`)
	for _, name := range []string{"scrape-sidecar.yaml", "scrape-service.yaml"} {
		directory := t.TempDir()
		for _, other := range []string{"rules.yaml", "alerts.yaml"} {
			write(t, directory, other, read(t, other))
		}
		certify(t, directory, 0)
		for _, file := range []string{"token", "ca.crt"} {
			write(t, directory, file, "")
		}
		text := read(t, name)
		if len(discovery.FindAllString(text, -1)) != 1 {
			t.Fatalf("%s does not find its targets as it did", name)
		}
		text = discovery.ReplaceAllString(text, "    static_configs:\n      - targets: ['127.0.0.1:1']\n")
		text = mounted.ReplaceAllString(text, directory+"/")
		path := filepath.Join(directory, name)
		write(t, directory, name, text)
		promtool := filepath.Join(os.Getenv("PROMETHEUS_BIN"), "promtool")
		if said, err := exec.Command(promtool, "check", "config", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
}

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join("../../config/prometheus", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
