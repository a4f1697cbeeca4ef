// Command generate writes the dashboards from the description in this folder.
//
//	go run . [--check] DIRECTORY
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	check := flag.Bool("check", false, "change nothing; fail if a file is not what would be written")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: generate [--check] DIRECTORY")
		os.Exit(2)
	}
	if err := write(flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(directory string, check bool) error {
	expected := map[string]bool{}
	for _, board := range boards {
		name := strings.TrimPrefix(board.UID, "fairgate-") + ".json"
		expected[name] = true
		path := filepath.Join(directory, name)
		text, err := encode(board.grafana())
		if err != nil {
			return err
		}
		if !check {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				return err
			}
			continue
		}
		found, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(found, text) {
			return fmt.Errorf("%s is not current: run config/grafana/generate/run", path)
		}
	}
	paths, err := filepath.Glob(filepath.Join(directory, "*.json"))
	for _, path := range paths {
		if !expected[filepath.Base(path)] {
			return fmt.Errorf("%s belongs to no board: remove it", path)
		}
	}
	return err
}

func encode(board object) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(board)
	return text.Bytes(), err
}
