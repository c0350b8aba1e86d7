"""Opens URLs in Chromium by Selenium, set up by the lines in the file "recipe"."""
import json
import sys

from selenium import webdriver

exec(open("recipe").read())
for arg in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]:  # tests run as root, some in a container
    options.add_argument(arg)
driver = webdriver.Chrome(options=options)
try:
    for url in sys.argv[1:]:
        driver.get(url)
        print(json.dumps({"url": url, "body": driver.page_source, "agent": driver.execute_script("return navigator.userAgent")}), flush=True)
finally:
    driver.quit()
