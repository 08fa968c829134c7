"""The live server: what pages and their data say, what changes without a reload, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from starlette.testclient import TestClient

from harness.errors import Unreachable
from harness.stores.directory.store import DirectoryStore
from harness.study.study import Request
from harness.view.snapshot import Watcher
from tests.stored_runs import start, store_run
from tests.view.conftest import HOST, NASTY, TOKEN

PAGES = ["/", "/runs", "/compare", "/study/tiny/mine"]
EVERY = [*PAGES, "/data/studies", "/data/runs", "/static/view.js", "/data/curves?study=mine&preset=tiny"]


# Who may look


def test_nothing_is_shown_without_the_token(anybody: TestClient) -> None:
    for path in EVERY:
        for headers in ({}, {"cookie": "harness-view=wrong"}, {"authorization": f"Bearer {TOKEN}"}):
            answer = anybody.get(path, headers=headers)
            assert answer.status_code == 403 and "token" in answer.text and "mine" not in answer.text, path
        assert anybody.get(path, params={"token": "wrong"}).status_code == 403, path


def test_the_printed_address_lets_in_and_the_token_leaves_the_address(anybody: TestClient) -> None:
    entered = anybody.get("/runs", params={"token": TOKEN, "where": "seed > 0"})
    assert entered.status_code == 303 and entered.headers["location"] == "/runs?where=seed+%3E+0"
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert anybody.get("/").status_code == 200
    assert TOKEN not in "".join(anybody.get(path).text for path in PAGES)


def test_a_host_header_of_another_name_is_refused(client: TestClient) -> None:
    for host in ["evil.example", "evil.example:8080", "127.0.0.1:8081", f"{HOST}.evil.example", ""]:
        assert client.get("/data/runs", headers={"host": host}).status_code == 403, host
    assert client.get("/data/runs", headers={"host": "LOCALHOST:8080"}).status_code == 200


def test_other_methods_are_refused(client: TestClient, stored: list[str]) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.request(method, "/runs").status_code == 405
        assert client.request(method, f"/run/{stored[0]}").status_code == 405
    assert (Path("runs") / stored[0] / "result.json").is_file()


def test_pages_of_other_sites_get_nothing(client: TestClient) -> None:
    answer = client.get("/data/runs", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"})
    assert answer.status_code == 403
    answer = client.get("/data/runs", headers={"origin": "https://evil.example"})
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_every_answer_forbids_foreign_content_and_frames(client: TestClient) -> None:
    for path in EVERY:
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"].partition("script-src")[2].partition(";")[0]
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")


def test_only_files_of_the_run_can_be_had(client: TestClient, stored: list[str]) -> None:
    for name in ("../cell.json", "..%2f..%2fmine.py", "/etc/passwd", "%2e%2e/%2e%2e/toy.npz", "nothing"):
        assert client.get(f"/file/{stored[0]}/{name}").status_code == 404, name
    assert client.get(f"/file/../{stored[0]}/result.json").status_code in (403, 404)
    found = client.get(f"/file/{stored[0]}/result.json")
    assert found.status_code == 200 and found.headers["content-disposition"].startswith("attachment")
    assert json.loads(found.content) == json.loads((Path("runs") / stored[0] / "result.json").read_text())


def test_names_are_shown_as_text(client: TestClient) -> None:
    for path in PAGES:
        assert NASTY not in client.get(path).text, path


def test_a_log_and_a_traceback_are_shown_as_text(
    client: TestClient, watcher: Watcher, requests: list[Request], stored: list[str]
) -> None:
    failed = store_run(Path("runs"), requests[-1], status="failed")
    (Path("runs") / failed.id / "cout.txt").write_text(f"hello {NASTY}\n")
    watcher.refresh()
    assert NASTY not in client.get(f"/run/{failed.id}").text and NASTY not in client.get("/").text
    assert client.get(f"/data/log/{failed.id}").json()["text"] == f"hello {NASTY}\n"


def test_no_page_loads_anything_from_elsewhere(client: TestClient, stored: list[str]) -> None:
    for path in (*PAGES, f"/run/{stored[0]}"):
        text = client.get(path).text
        assert 'src="http' not in text and 'href="http' not in text and "url(http" not in text


# What it shows


def test_the_first_page_says_how_studies_stand(client: TestClient) -> None:
    (study,) = client.get("/data/studies").json()["studies"]
    assert (study["name"], study["done"], study["waiting"], study["trials"]) == ("mine", 4, 0, 4)
    assert study["part"] == "Your studies"


def test_a_study_shows_the_table_of_its_report_and_the_runs_behind_it(client: TestClient, stored: list[str]) -> None:
    found = client.get("/data/study/tiny/mine").json()
    assert "0.600" in found["html"] and "0.700" in found["html"]
    assert {run for place in found["places"] for *_, run in place["measured"]} >= set(stored)
    assert client.get("/data/study/demo/mine").status_code == 404
    assert "did you mean" in client.get("/data/study/tiny/mina").json()["error"]


def test_curves_are_grouped_by_row(client: TestClient) -> None:
    query = {"study": "mine", "preset": "tiny", "metric": "kendall_tau"}
    first, second = client.get("/data/curves", params=query).json()["groups"]
    assert (first["n"], first["x"], first["mean"]) == (2, [1, 2], [0.3, 0.6])
    assert (first["label"], second["label"]) == (f"cosine {NASTY}", f"calr {NASTY}")
    assert second["mean"] == [0.35, 0.7] and {run["seed"] for run in second["runs"]} == {0, 1}
    for form, head in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        assert client.get(f"/figure/curves.{form}", params=query).content.startswith(head)
    assert "kendall_tau" in client.get("/data/curves", params={**query, "metric": "kendal"}).json()["error"]


def test_chosen_runs_are_grouped_by_what_distinguishes_them(client: TestClient, stored: list[str]) -> None:
    groups = client.get("/data/curves", params={"run": stored, "metric": "kendall_tau"}).json()["groups"]
    assert [one["n"] for one in groups] == [2, 2] and all("schedule.name" in one["label"] for one in groups)


def test_a_run_shows_what_show_shows(client: TestClient, stored: list[str]) -> None:
    found = client.get(f"/data/run/{stored[0]}").json()
    assert found["config"]["schedule.name"] == "cosine" and found["result"]["kendall_tau"] == 0.5
    assert found["curves"]["kendall_tau"]["step"] == [[1, 2], [0.25, 0.5]]
    assert found["files"]["result.json"] > 0 and f"harness rerun {stored[0]}" in found["commands"]
    assert (found["study"], found["heading"]["trial"][:16]) == ("mine", stored[0][:16])
    assert client.get("/data/run/nothing").status_code == 404


def test_a_condition_is_that_of_query_and_its_errors_are_readable(client: TestClient, stored: list[str]) -> None:
    matching = client.get("/data/runs", params={"where": "schedule.name == 'calr'"}).json()["matching"]
    assert sorted(matching) == sorted(stored[2:])
    wrong = client.get("/data/runs", params={"where": "schedul.name == 'calr'"})
    assert wrong.status_code == 200 and "schedule_name" in wrong.json()["wrong"]
    wrong = client.get("/data/runs", params={"where": "__import__('os')"})
    assert "not allowed" in wrong.json()["wrong"]
    assert "schedule_name" in client.get("/runs", params={"where": "schedul.name == 'calr'"}).text
    assert "kendall_tau" in client.get("/data/runs", params={"columns": "kendal_tau"}).json()["error"]


# What changes


def test_only_what_is_new_is_sent(
    client: TestClient, watcher: Watcher, requests: list[Request], stored: list[str]
) -> None:
    first = client.get("/data/runs").json()
    assert len(first["rows"]) == 4
    since = {"since": first["version"], "seen": ",".join(first["columns"])}
    assert client.get("/data/runs", params=since).json()["rows"] == []
    new = store_run(Path("runs"), requests[2], 0.9)
    watcher.refresh()
    later = client.get("/data/runs", params=since).json()
    assert [row[0] for row in later["rows"]] == [new.id] and later["total"] == 5


def test_an_unchanged_answer_is_empty(client: TestClient) -> None:
    tag = client.get("/data/study/tiny/mine").headers["etag"]
    answer = client.get("/data/study/tiny/mine", headers={"if-none-match": tag})
    assert answer.status_code == 304 and answer.content == b""


def test_a_run_that_is_removed_leaves_the_page(client: TestClient, watcher: Watcher, stored: list[str]) -> None:
    first = client.get("/data/runs").json()
    shutil.rmtree(Path("runs") / stored[0])
    watcher.refresh()
    later = client.get("/data/runs", params={"since": first["version"], "seen": ",".join(first["columns"])}).json()
    assert later["removed"] == [stored[0]] and later["rows"] == []


def test_a_running_trial_shows_how_far_it_is(client: TestClient, watcher: Watcher, requests: list[Request]) -> None:
    directory = DirectoryStore(Path("runs")).create(requests[2].trial, "tiny", {})
    observer = start(directory, requests[2].trial)
    observer.progress = {"stage": "train", "step": 3, "steps": 20, "loss": 1.5, "device": "cpu"}
    observer.heartbeat_event({}, "", datetime(2026, 1, 1, 10, 0, 5), None)
    (directory.path / "cout.txt").write_text("epoch 3/20\n")
    watcher.refresh()
    (working,) = client.get("/data/studies").json()["working"]
    assert (working["run"], working["stage"], working["step"], working["steps"]) == (directory.id, "train", 3, 20)
    assert client.get(f"/data/run/{directory.id}").json()["working"]["loss"] == 1.5
    log = client.get(f"/data/log/{directory.id}").json()
    assert log["text"] == "epoch 3/20\n"
    with (directory.path / "cout.txt").open("a") as file:
        file.write("epoch 4/20\n")
    assert client.get(f"/data/log/{directory.id}", params={"after": log["to"]}).json()["text"] == "epoch 4/20\n"


def test_a_store_that_cannot_be_read_is_said_and_the_last_state_stays(
    client: TestClient, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Unreachable("the database does not answer")

    monkeypatch.setattr(watcher._store, "runs", refuse)
    watcher.refresh()
    found = client.get("/data/studies").json()
    assert found["trouble"] == "the database does not answer" and found["studies"][0]["done"] == 4


def test_the_printed_address_can_be_opened_at_once(stored: list[str]) -> None:
    command = [sys.executable, "-m", "harness", "view", "mine"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            with build_opener(HTTPCookieProcessor()).open(address, timeout=600) as page:
                assert "Mine" in page.read().decode()
        finally:
            server.terminate()
